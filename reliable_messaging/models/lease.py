from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..names import KEY_LENGTH
from .fields import ExactCharField


class Lease(models.Model):
    """An exclusive right with a name. Its row is never deleted: the tokens would begin again, and a
    resource that compares them would take a stale holder for a new one."""

    name = ExactCharField(_("name"), max_length=KEY_LENGTH, primary_key=True)
    token = models.BigIntegerField(_("token"), default=0)
    """That of the last holder; each new one has a greater one."""
    owner = ExactCharField(_("owner"), max_length=KEY_LENGTH, default="")
    acquired_at = models.DateTimeField(_("acquired at"), null=True)
    expires_at = models.DateTimeField(_("expires at"), null=True)
    """None: released."""

    class Meta:
        verbose_name = _("lease")
        verbose_name_plural = _("leases")
        permissions = [("release_lease", "Can take a lease away from its holder")]

    def __str__(self) -> str:
        return self.name
