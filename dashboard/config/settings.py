"""Django's settings, from `env.py`. Wiring only: no rule of the domain is decided here.

Django's own safe defaults (headers, cookies for this site only) are not said again; tests hold them.
"""

from datetime import timedelta
from pathlib import Path

import dj_database_url

from dashboard.config.admin_look import LOOK
from dashboard.config.env import env
from dashboard.config.log import configure_structlog, logging_config

BASE_DIR = Path(__file__).resolve().parent.parent.parent
DATA_DIR = env.data_dir.expanduser()

SECRET_KEY = env.secret_key
DEBUG = env.debug
ALLOWED_HOSTS = env.allowed_hosts
PUBLIC_URL = env.public_url.rstrip("/")
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "dashboard.config.admin_site.AdministrationConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "axes",
    "ninja",
    "orchestrator",
    "dashboard",
]

MIDDLEWARE = [
    "dashboard.config.middleware.HeadersMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "dashboard.config.static.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "dashboard.config.middleware.SignInRequiredMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "dashboard.urls"
ASGI_APPLICATION = "dashboard.config.asgi.application"
AUTH_USER_MODEL = "orchestrator.User"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]


SQLITE = {
    "ENGINE": "dashboard.config.sqlite",
    "NAME": DATA_DIR / "trainyard.sqlite3",
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
    },
    "TEST": {"NAME": DATA_DIR / "test.sqlite3"},
}
# Under ASGI each request has a thread of its own, so a kept connection would never be used again.
DATABASES = {"default": dj_database_url.parse(env.database_url, conn_max_age=0) if env.database_url else SQLITE}
REDIS_URL = env.redis_url
AGENT_REDIS_URL = env.agent_redis_url or env.redis_url
CHANNEL_LAYERS = {
    "default": {"BACKEND": "dashboard.sockets.layer.LiveLayer", "CONFIG": {"hosts": [env.redis_url]}},
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
FORMAT_MODULE_PATH = "dashboard.config.formats"

STATIC_URL = "/static/"
STATIC_ROOT = Path(env.static_dir) if env.static_dir else DATA_DIR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "dashboard.static_files.StaticFiles"},
}
# Where `manage.py static_files` has prepared nothing, files are served from the packages themselves.
WHITENOISE_USE_FINDERS = True
WHITENOISE_ALLOW_ALL_ORIGINS = False
WHITENOISE_AUTOREFRESH = env.debug
ARTIFACT_ROOT = DATA_DIR / "artifacts"
CHECKPOINT_ROOT = DATA_DIR / "checkpoints"

LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = LOGIN_URL
# How long a link to set a password counts.
PASSWORD_RESET_TIMEOUT = int(timedelta(days=1).total_seconds())
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
SESSION_COOKIE_AGE = int(timedelta(days=7).total_seconds())
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.secure_cookies
SECURE_HSTS_SECONDS = int(timedelta(days=30).total_seconds()) if env.secure_cookies else 0
UNFOLD = LOOK

# Failed sign-ins are counted per name and address: guessing is slow, and nobody can lock out a colleague from afar.
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "dashboard.config.middleware.client_address"
AXES_LOCKOUT_CALLABLE = "dashboard.views.sign_in.locked_out"
AXES_VERBOSE = False
# REST counts calls per peer that the server saw, never per what a header claims.
NINJA_NUM_PROXIES = 0

# A form or JSON body that carries a program: its bytes may be written as base64 or JSON text.
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * env.max_code_bytes + 1_000_000
DATA_UPLOAD_MAX_NUMBER_FIELDS = 500
DATA_UPLOAD_MAX_NUMBER_FILES = 5

LOGGING = logging_config(as_json=env.log_json, debug=env.debug)
configure_structlog()

NODE_LOST_AFTER_S = env.node_lost_after_s
LEASE_S = env.lease_s
ZYGOTE_IDLE_S = env.zygote_idle_s
HANG_AFTER_S = env.hang_after_s
HANG_PHASE_S = env.hang_phase_s
REHEARSE = env.rehearse
NODE_FAILURES_CORDON = env.node_failures_cordon
SWEEP_EVERY_S = env.sweep_every_s
COMMAND_RESEND_S = env.command_resend_s
COMMAND_EXPIRY_S = env.command_expiry_s
STOP_GRACE_S = env.stop_grace_s
PAUSE_GRACE_S = env.pause_grace_s
RENDEZVOUS_TIMEOUT_S = env.rendezvous_timeout_s
MAX_CODE_BYTES = env.max_code_bytes
MAX_ARTIFACT_BYTES = env.max_artifact_bytes
