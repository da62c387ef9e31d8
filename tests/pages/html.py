"""Pages as tests compare them: what is white space for the layout of a template alone is left out."""

import re

from django.http import HttpResponse


def html_of(answer: HttpResponse) -> str:
    """The page in one line, with no white space beside a tag."""
    return re.sub(r" ?(<[^>]*?) ?(/?>) ?", r"\1\2", " ".join(answer.content.decode().split()))
