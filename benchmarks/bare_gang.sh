#!/bin/sh
# The bare gang: two workers on this machine with a hand-written TF_CONFIG.
# usage: bare_gang.sh PYTHON RECIPE PORT0 PORT1
set -eu
here=$(dirname "$0")
export TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES=-1 OMP_NUM_THREADS=1
cluster="{\"worker\": [\"127.0.0.1:$3\", \"127.0.0.1:$4\"]}"
TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"worker\", \"index\": 0}}" "$1" -P "$here/bare_worker.py" "$2" &
first=$!
TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"worker\", \"index\": 1}}" "$1" -P "$here/bare_worker.py" "$2" &
wait $first $!
