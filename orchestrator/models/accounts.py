"""People and the tokens they give to programs."""

import hashlib
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.db import models


class UserRole(models.TextChoices):
    """What a person may do: look; run jobs; or also register machines and people."""

    VIEWER = "viewer", "Viewer"
    MEMBER = "member", "Member"
    ADMINISTRATOR = "administrator", "Administrator"


class User(AbstractUser):
    """A person. `role` decides; administrators are staff, so that the admin lets them in (kept in step by `save`)."""

    role = models.CharField(max_length=16, choices=UserRole, default=UserRole.MEMBER)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Keep Django's own flags in step with the role; `createsuperuser` makes an administrator."""
        if self._state.adding and self.is_superuser:
            self.role = UserRole.ADMINISTRATOR
        self.is_staff = self.is_superuser = self.role == UserRole.ADMINISTRATOR
        super().save(*args, **kwargs)

    @property
    def may_run_jobs(self) -> bool:
        """Members and administrators create, stop and retry jobs."""
        return self.role in (UserRole.MEMBER, UserRole.ADMINISTRATOR)

    @property
    def may_administer(self) -> bool:
        """Administrators register clusters, nodes and people."""
        return self.role == UserRole.ADMINISTRATOR

    def may_act_for(self, owner_id: int) -> bool:
        """Each person decides about what is their own, administrators about anybody's."""
        return owner_id == self.pk or self.may_administer


class ApiToken(models.Model):
    """A bearer token of a person; only its SHA-256 is kept."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """Its name in the administration."""

        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"


def digest_of(token: str) -> str:
    """The stored form of a token (tokens are random, so a plain hash is enough)."""
    return hashlib.sha256(token.encode()).hexdigest()
