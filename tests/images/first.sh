#!/bin/sh
# The first process of a container, in namespaces of its own: its name and mounts, then the program as the image's user.
#   first.sh ROOT HOSTNAME SHM_BYTES UID:GID FOLDER [SOURCE PLACE]… -- PROGRAM [ARGUMENT]…
set -eu
root=$1 name=$2 shm=$3 user=$4 folder=$5
shift 5
echo "$name" > /proc/sys/kernel/hostname
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 -o ro cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/shm"
mount -t tmpfs -o "mode=1777,size=$shm" tmpfs "$root/dev/shm"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
for number in 0 1 2; do ln -s "/proc/self/fd/$number" "$root/dev/$number"; done
mv "$root/dev/0" "$root/dev/stdin"
mv "$root/dev/1" "$root/dev/stdout"
mv "$root/dev/2" "$root/dev/stderr"
while [ "$1" != -- ]; do
    mount --bind "$1" "$root$2"
    shift 2
done
shift
# It dies with the test run: what `unshare --kill-child` asks for is forgotten where the user changes.
exec chroot "$root" setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups --pdeathsig KILL \
    /bin/sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
