"""Django's settings, from `env.py`. Wiring only: no rule of the domain is decided here."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from dashboard.config.env import env

BASE_DIR = Path(__file__).resolve().parent.parent.parent
DATA_DIR = env.data_dir.expanduser()

SECRET_KEY = env.secret_key
DEBUG = env.debug
ALLOWED_HOSTS = env.allowed_hosts
PUBLIC_URL = env.public_url.rstrip("/")
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "axes",
    "orchestrator",
    "dashboard",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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


def _database(url: str) -> dict[str, object]:
    if not url:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": DATA_DIR / "trainyard.sqlite3",
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
            },
            "TEST": {"NAME": DATA_DIR / "test.sqlite3"},
        }
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": parts.port or "",
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }


DATABASES = {"default": _database(env.database_url)}
REDIS_URL = env.redis_url
AGENT_REDIS_URL = env.agent_redis_url or env.redis_url
CHANNEL_LAYERS = {
    "default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [env.redis_url]}},
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
ARTIFACT_ROOT = DATA_DIR / "artifacts"

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.secure_cookies
X_FRAME_OPTIONS = "DENY"

NODE_LOST_AFTER_S = env.node_lost_after_s
SWEEP_EVERY_S = env.sweep_every_s
COMMAND_RESEND_S = env.command_resend_s
COMMAND_EXPIRY_S = env.command_expiry_s
STOP_GRACE_S = env.stop_grace_s
RENDEZVOUS_TIMEOUT_S = env.rendezvous_timeout_s
MAX_CODE_BYTES = env.max_code_bytes
MAX_ARTIFACT_BYTES = env.max_artifact_bytes
