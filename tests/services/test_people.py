"""People, where pages do not reach: two at once, and what a deletion keeps."""

from threading import Barrier

import pytest

from orchestrator.models import Event, User
from orchestrator.queries.errors import NotFound
from orchestrator.services import people
from orchestrator.services.errors import Conflict, Forbidden
from tests.factories import make_job, make_user
from tests.services.jobs.test_races import at_once


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("act", [people.deactivate, people.delete_person])
def test_two_administrators_who_remove_each_other_leave_one(act):
    ann, bob = make_user("ann", role="administrator"), make_user("bob", role="administrator")
    ready = Barrier(2)

    def removing(person: User, by: User):
        def act_now():
            ready.wait(10)
            return act(person_id=person.pk, by=by)

        return act_now

    outcomes = at_once(removing(bob, ann), removing(ann, bob))
    assert sum(isinstance(each, Conflict) for each in outcomes) == 1, outcomes
    assert User.objects.filter(role="administrator", is_active=True).count() == 1
    assert Event.objects.count() == 1


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_only_administrators_change_people(role, administrator):
    by = make_user("other", role=role)
    for act in (people.deactivate, people.activate, people.delete_person, people.password_token):
        with pytest.raises(Forbidden):
            act(person_id=administrator.pk, by=by)
    with pytest.raises(Forbidden):
        people.change_role(person_id=by.pk, role="administrator", by=by, sure=True)
    with pytest.raises(Forbidden):
        people.add_person(username="new", email="", role="viewer", by=by)
    assert not Event.objects.exists()


def test_who_is_not_there_is_not_found(administrator):
    for act in (people.deactivate, people.activate, people.delete_person, people.password_token):
        with pytest.raises(NotFound):
            act(person_id=0, by=administrator)


def test_a_person_with_jobs_or_oneself_is_not_deleted(administrator, member):
    make_job(owner=member)
    for person in (administrator, member):
        with pytest.raises(Conflict):
            people.delete_person(person_id=person.pk, by=administrator)


def test_the_same_again_leaves_no_trace(administrator, member):
    people.change_role(person_id=member.pk, role="member", by=administrator)
    people.activate(person_id=member.pk, by=administrator)
    assert not Event.objects.exists()
