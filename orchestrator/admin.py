"""The administration, for administrators only: machines, people, and an audit of what happened.

Nothing here writes a status or removes what runs: machines change through `services/nodes/nodes.py`, jobs are looked at
only.
"""

from django.contrib import admin
from django.contrib.auth.models import Group

from orchestrator.administration.audit import ApiTokenAdmin, EventAdmin, JobAdmin
from orchestrator.administration.machines import ClusterAdmin, NodeAdmin
from orchestrator.administration.people import PersonAdmin
from orchestrator.models import ApiToken, Cluster, Event, Job, Node, User

admin.site.register(Cluster, ClusterAdmin)
admin.site.register(Node, NodeAdmin)
admin.site.register(User, PersonAdmin)
admin.site.register(ApiToken, ApiTokenAdmin)
admin.site.register(Job, JobAdmin)
admin.site.register(Event, EventAdmin)
# A person has a role; groups and single permissions decide nothing here.
admin.site.unregister(Group)
