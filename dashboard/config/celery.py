"""The control plane's Celery application: `celery -A dashboard.config.celery worker -Q control`.

Every process of the control plane imports it (through `dashboard/apps.py`), because every one of them sends tasks.
Nothing that lasts runs in Celery, results are not kept, and only JSON travels.
"""

import os

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.config.settings")

from django.conf import settings

app = Celery("trainyard", set_as_current=True)
app.conf.update(
    broker_url=settings.REDIS_URL,
    # A worker that starts before Redis does waits for it.
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 10,
    },
    accept_content=["json"],
    task_ignore_result=True,
    task_default_queue="control",
    # Each worker has a queue of its own beside it, by which its health check asks it.
    worker_direct=True,
    # The first call after a broker's restart fails, the second works. What is not sent then is sent by the sweep.
    task_publish_retry=True,
    task_publish_retry_policy={"max_retries": 2, "interval_start": 0.0, "interval_step": 0.1, "interval_max": 0.2},
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_enable_remote_control=False,
)
app.autodiscover_tasks(["orchestrator"])


@setup_logging.connect
def _keep_django_logging(**_unused: object) -> None:
    """Django's settings have configured logging; Celery adds nothing."""
