"""Every HTTP route. A route is closed to strangers unless `dashboard/config/middleware.py` names it."""

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path

from dashboard.api import agents, checkpoints, health, problems
from dashboard.api.v1 import api
from dashboard.views import bulk, compare, jobs, overview, passwords, people, points, sign_in, tokens
from dashboard.views.job import job
from dashboard.views.machines import cluster_settings, machines, node
from dashboard.views.new_job import new_job, preflight
from dashboard.views.strategy_tests import acts, asking
from dashboard.views.strategy_tests import pages as tests

handler404 = problems.no_route

pages = [
    path("", overview.overview, name="overview"),
    path("jobs/", jobs.jobs, name="jobs"),
    path("compare/", compare.compare, name="compare"),
    path("compare/state/", compare.compare_state, name="compare_state"),
    path("compare/curves/", compare.compare_curves, name="compare_curves"),
    path("points.csv", points.points, name="points"),
    path("jobs/bulk/", bulk.job_bulk, name="job_bulk"),
    path("jobs/find/", jobs.job_find, name="job_find"),
    path("jobs/new/", new_job.job_new, name="job_new"),
    path("jobs/new/preview/", new_job.job_preview, name="job_preview"),
    path("jobs/new/strategies.css", new_job.job_strategies, name="job_strategies"),
    path("jobs/new/check/", new_job.job_check, name="job_check"),
    path("checks/<int:preflight_id>/", preflight.preflight, {"template": "page.html"}, name="preflight"),
    path("checks/<int:preflight_id>/state/", preflight.preflight, {"template": "_result.html"}, name="preflight_state"),
    path("checks/<int:preflight_id>/cancel/", preflight.preflight_cancel, name="preflight_cancel"),
    path("jobs/<int:job_id>/", job.job, name="job"),
    path("jobs/<int:job_id>/state/", job.job_state, name="job_state"),
    path("jobs/<int:job_id>/stop/", job.job_stop, name="job_stop"),
    path("jobs/<int:job_id>/pause/", job.job_pause, name="job_pause"),
    path("jobs/<int:job_id>/resume/", job.job_resume, name="job_resume"),
    path("jobs/<int:job_id>/retry/", job.job_retry, name="job_retry"),
    path("jobs/<int:job_id>/words/", job.job_words, name="job_words"),
    path("jobs/<int:job_id>/delete/", job.job_delete, name="job_delete"),
    path("jobs/<int:job_id>/printed/", job.job_printed, name="job_printed"),
    path("jobs/<int:job_id>/log/", job.job_log, name="job_log"),
    path("jobs/<int:job_id>/checkpoints/<int:checkpoint_id>/", job.job_checkpoint, name="job_checkpoint"),
    path("jobs/<int:job_id>/artifacts/<int:artifact_id>/", job.job_artifact, name="job_artifact"),
    path("jobs/<int:job_id>/files/<int:attempt>.zip", job.job_files, name="job_files"),
    path("strategy-tests/", tests.tests, name="strategy_tests"),
    path("strategy-tests/new/", asking.new, name="strategy_test_new"),
    path("strategy-tests/<int:test_id>/", tests.test, name="strategy_test"),
    path("strategy-tests/<int:test_id>/state/", tests.state, name="strategy_test_state"),
    path("strategy-tests/<int:test_id>/curves/", tests.curves, name="strategy_test_curves"),
    path("strategy-tests/<int:test_id>/report.html", tests.whole, name="strategy_test_html"),
    path("strategy-tests/<int:test_id>/report.csv", tests.table, name="strategy_test_csv"),
    path("strategy-tests/<int:test_id>/candidates/", asking.extend, name="strategy_test_extend"),
    path("strategy-tests/<int:test_id>/pause/", acts.pause, name="strategy_test_pause"),
    path("strategy-tests/<int:test_id>/resume/", acts.resume, name="strategy_test_resume"),
    path("strategy-tests/<int:test_id>/stop/", acts.stop, name="strategy_test_stop"),
    path("strategy-tests/<int:test_id>/again/", acts.again, name="strategy_test_again"),
    path("strategy-tests/<int:test_id>/delete/", acts.delete, name="strategy_test_delete"),
    path("clusters/", machines.clusters, name="clusters"),
    path("clusters/<slug:name>/", machines.cluster, name="cluster"),
    path("clusters/<slug:name>/state/", machines.cluster_state, name="cluster_state"),
    path("clusters/<slug:name>/settings/", cluster_settings.cluster_settings, name="cluster_settings"),
    path("clusters/<slug:name>/delete/", cluster_settings.cluster_delete, name="cluster_delete"),
    path("clusters/<slug:name>/join/", machines.cluster_join, name="cluster_join"),
    path("nodes/", machines.nodes, name="nodes"),
    path("nodes/state/", machines.nodes_state, name="nodes_state"),
    path("nodes/<slug:node_id>/", node.node, name="node"),
    path("nodes/<slug:node_id>/state/", node.node_state, name="node_state"),
    path("nodes/<slug:node_id>/<slug:action>/", node.node_action, name="node_action"),
    path("people/", people.people, name="people"),
    path("people/<int:person_id>/", people.person, name="person"),
    path("people/<int:person_id>/<slug:action>/", people.person_action, name="person_action"),
    path("account/password/", passwords.password, name="password"),
    path("password/<str:key>/<str:token>/", passwords.password_link, name="password_link"),
    path("account/tokens/", tokens.tokens, name="tokens"),
    path("account/tokens/<int:token_id>/revoke/", tokens.revoke, name="token_revoke"),
    path("sign-in/", sign_in.SignInView.as_view(), name="sign_in"),
    path("sign-out/", LogoutView.as_view(), name="sign_out"),
]

for_agents = [
    path("join", agents.join, name="agent_join"),
    path("network", agents.network, name="agent_network"),
    path("code/<str:sha256>", agents.program, name="agent_program"),
    path("replicas/<int:replica_id>/files", agents.files, name="agent_files"),
    path("replicas/<int:replica_id>/artifacts/<path:name>", agents.artifact, name="agent_artifact"),
    path("replicas/<int:replica_id>/checkpoints/<str:name>", checkpoints.offered, name="agent_checkpoint"),
    path("replicas/<int:replica_id>/checkpoints/<str:name>/<str:file>", checkpoints.part, name="agent_checkpoint_part"),
    path("checkpoints/<int:checkpoint_id>/<str:file>", checkpoints.fetched, name="agent_checkpoint_fetched"),
]

urlpatterns = [
    *pages,
    path("admin/", admin.site.urls),
    path("api/v1/", api.urls),
    path("agent/v1/", include(for_agents)),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
]
