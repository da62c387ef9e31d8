"""Signing in with name and password, and the answer to too many wrong ones. Signing out is Django's own, by POST."""

import math

from axes.helpers import get_cool_off
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

TEMPLATE = "dashboard/account/sign_in.html"
WRONG = "Name and password do not match. Passwords are case-sensitive."


class SignInForm(AuthenticationForm):
    """Django's own form with our words. An account that is switched off reads like a wrong password, on purpose."""

    error_messages = {"invalid_login": WRONG}


@method_decorator(never_cache, name="dispatch")
class SignInView(LoginView):
    """The sign-in page; goes on to `next` when that lies on this server."""

    template_name = TEMPLATE
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """The page again, with 401 so that a script does not take it for success."""
        response = super().form_invalid(form)
        response.status_code = 401
        return response


def locked_out(request: HttpRequest, *_: object) -> HttpResponse:
    """What axes answers instead once a name has failed too often from one address."""
    pause = get_cool_off(request)
    minutes = math.ceil(pause.total_seconds() / 60) if pause else 0
    context = {
        "locked": True,
        "failures": settings.AXES_FAILURE_LIMIT,
        "minutes": minutes,
        "typed_name": request.POST.get("username", ""),
        "next": request.POST.get("next", ""),
    }
    return render(request, TEMPLATE, context, status=429)
