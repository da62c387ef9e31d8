"""What templates need to speak the look: words and tones of states, numbers, durations, times, icons, sparklines.

Every page loads this library. The browser's `js/base/format.js` follows the same rules for what is written live.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache

from django import template
from django.template import Context
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from dashboard.static_files import STATIC_FILES
from dashboard.tones import SHAPES, TONES, tone_of
from orchestrator.domain.gang.reasons import sentence_in
from orchestrator.queries.machines import Slot
from worker_agent.protocol.job.strategies import label

register = template.Library()
register.filter("tone", tone_of)
register.filter("strategy_name", label)

NARROW = "\u202f"
MINUS = "\u2212"
MISSING = "\u2013"
METRICS_SHOWN = 4
HEADLINE_CHARS = 200
BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")
SPARK_WIDTH, SPARK_HEIGHT = 100, 28
CELLS_KEPT = 1000


@register.filter
def path(text: str) -> SafeString:
    """A path of files, which may break behind what parts its words: `runs/<wbr>a_<wbr>b`."""
    return format_html_join(SafeString("<wbr>"), "{}", ((part,) for part in re.split(r"(?<=[/_])", text)))


@register.filter
def word(status: str) -> str:
    """The state as a word for people."""
    return str(status).replace("_", " ").capitalize()


@register.filter
def metric_name(name: str) -> str:
    """A metric as people say it: val_accuracy is Validation accuracy."""
    text = re.sub(r"^val_", "validation_", str(name)).replace("_", " ")
    return text[:1].upper() + text[1:]


@register.filter
def replica_name(value: object) -> str:
    """`worker:0` as people say it: worker 0."""
    return str(value).replace(":", " ")


@register.filter
def event_state(kind: str) -> str:
    """The state that an event such as `job_failed` speaks of, "" where it speaks of none."""
    state = str(kind).partition("_")[2]
    return state if state in TONES else ""


@register.filter
def group(value: object) -> str:
    """A whole number with narrow no-break spaces: 41 286."""
    number = _number(value)
    return MISSING if number is None else _grouped(round(number))


@register.filter
def figure(value: object) -> str:
    """A measured number at the precision people read: 0.0123, 1.950, 12.30, 14 651."""
    number = _number(value)
    if number is None:
        return MISSING
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("∞" if number > 0 else f"{MINUS}∞")
    size = abs(number)
    if size >= 1000:
        return _grouped(round(number))
    if 0 < size < 0.001:
        return f"{number:.2e}".replace("-", MINUS)
    return f"{number:.{4 if size < 10 else 2 if size < 100 else 1}f}".replace("-", MINUS)


@register.filter
def headline_metrics(metrics: Mapping[str, object]) -> list[tuple[str, object]]:
    """The first few, those of validation before the others: a person chooses by them."""
    return sorted(metrics.items(), key=lambda item: not item[0].startswith("val_"))[:METRICS_SHOWN]


@register.filter
def filesize(value: object) -> str:
    """Bytes in the unit people say: 33.1 GB."""
    number = _number(value)
    if number is None:
        return MISSING
    power = 0
    while number >= 1000 and power < len(BYTE_UNITS) - 1:
        number, power = number / 1000, power + 1
    digits = 0 if power == 0 or number >= 100 else 1
    return f"{number:.{digits}f}{NARROW}{BYTE_UNITS[power]}"


@register.filter
def duration(seconds: object) -> str:
    """Seconds as people say them: 14 s, 3 min, 4 h 03 min, 2 d 5 h."""
    number = _number(seconds)
    if number is None:
        return MISSING
    whole = max(0, int(number))
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60:02d} min" if hours else f"{minutes} min"


@register.filter
def to_the_second(seconds: float | None) -> str:
    """As other durations, but to the second below ten minutes: 2 min 05 s."""
    minutes, rest = divmod(round(seconds or 0), 60)
    return f"{minutes} min {rest:02d} s" if 0 < minutes < 10 else duration(seconds and round(seconds))


@register.filter
def headline(reason: str) -> str:
    """The first line of a reason, without the lines of the log that follow it."""
    first = sentence_in(reason).partition("\n")[0]
    return first if len(first) <= HEADLINE_CHARS else first[:HEADLINE_CHARS].rstrip() + "…"


@register.simple_tag
def when(moment: datetime | None, style: str = "short") -> SafeString | str:
    """A moment as `<time>`: the clock today, "Yesterday", then the date. The page turns it into the reader's zone.

    `style` "clock" always gives the clock, "full" the date and the clock.
    """
    if not moment:
        return MISSING
    at = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" data-when="{}" title="{}">{}</time>',
        at.isoformat(timespec="milliseconds"),
        style,
        f"{at:%d %b %Y, %H:%M:%S} UTC",
        _spoken(at, style),
    )


@register.simple_tag
@cache
def icon(name: str, css: str = "") -> SafeString:
    """A 16-unit icon from the sprite."""
    return format_html(
        '<svg class="ty-ico {}" aria-hidden="true"><use href="{}#{}"/></svg>', css, static("dashboard/icons.svg"), name
    )


@register.simple_tag
@cache
def script(name: str) -> SafeString:
    """A page's own module, such as `js/jobs.js`; with it the browser asks for all that it imports at once."""
    first, *imported = STATIC_FILES.modules(f"dashboard/{name}")
    links = format_html_join("", '<link rel="modulepreload" href="{}">', ((each,) for each in imported))
    return format_html('{}<script type="module" src="{}"></script>', links, first)


@register.simple_tag
def version() -> str:
    """Changes with the scripts and styles; "" where none were prepared (`static_files.py`)."""
    return str(STATIC_FILES.manifest_hash)


@register.simple_tag
@cache
def shape(status: str) -> SafeString:
    """The silhouette of a state, unique for each."""
    name = SHAPES.get(status, status)
    return format_html(
        '<svg class="ty-shape" aria-hidden="true"><use href="{}#st-{}"/></svg>', static("dashboard/icons.svg"), name
    )


@register.simple_tag
@cache
def status(state: str, label: str = "", pill: bool = False) -> SafeString:  # noqa: FBT001, FBT002 - as templates say it
    """A state as its silhouette and word (or another `label`) in its colour."""
    return format_html(
        '<span class="ty-status{}" data-status="{}" data-tone="{}">{} {}</span>',
        " is-pill" if pill else "",
        state,
        tone_of(state),
        shape(state),
        label or word(state),
    )


@register.simple_tag
def cell(slot: Slot) -> SafeString:
    """One device: held by a job, free, dirty with what was left there, or lost."""
    titles = {"lost": "lost", "dirty": slot.left, "held": slot.holder.job.name if slot.holder else ""}
    return _cell(slot.state, titles.get(slot.state))


@lru_cache(CELLS_KEPT)
def _cell(state: str, title: str | None) -> SafeString:
    return format_html(
        '<span class="ty-cell" data-state="{}" data-tone="{}"{}>{}</span>',
        state,
        tone_of(state),
        "" if title is None else format_html(' title="{}"', title),
        shape("gone" if state == "lost" else state),
    )


@register.simple_tag
def sparkline(values: Sequence[float | str | None], css: str = "", top: float | None = None) -> SafeString | str:
    """A curve without axes, drawn in a fixed box; nothing for fewer than two finite values.

    With `top` the box is 0 to `top`, whatever the values, so that curves beside each other compare; else it is theirs.
    """
    finite = [float(v) for v in values if isinstance(v, int | float) and math.isfinite(v)]
    if len(finite) < 2:
        return ""
    low, high = (0.0, float(top)) if top else (min(finite), max(finite))
    span, step = (high - low) or 1.0, SPARK_WIDTH / (len(finite) - 1)
    heights = [min(1.0, max(0.0, (value - low) / span)) for value in finite]
    points = [
        f"{place * step:.1f} {SPARK_HEIGHT - 2 - height * (SPARK_HEIGHT - 4):.1f}"
        for place, height in enumerate(heights)
    ]
    line = "M" + "L".join(points)
    return format_html(
        '<svg class="ty-spark {}" viewBox="0 0 {w} {h}" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="a" d="{line}L{w} {h}L0 {h}z"/><path class="l" d="{line}"/></svg>',
        css,
        w=SPARK_WIDTH,
        h=SPARK_HEIGHT,
        line=line,
    )


@register.simple_tag
def bar(share_percent: float, colour: str = "blue") -> SafeString:
    """A thin bar filled to a percentage."""
    width = max(0.0, min(100.0, float(share_percent)))
    return format_html(
        '<svg class="ty-bar" data-tone="{}" aria-hidden="true"><rect width="{}%" height="100%"/></svg>',
        colour,
        f"{width:.1f}",
    )


@register.simple_tag
def share(seconds: float, span_s: float, since: float = 0.0) -> str:
    """The part of a span in percent, for the geometry of pictures."""
    return f"{max(0.0, min(100.0, (float(seconds) - since) / span_s * 100)):.3f}"


@register.inclusion_tag("dashboard/parts/_empty.html")
def empty_state(title: str, text: str, href: str = "", action: str = "") -> dict[str, str]:
    """What stands where there is nothing yet, and the one next step if there is one."""
    return {"title": title, "text": text, "href": href, "action": action}


@register.simple_block_tag(takes_context=True)
def dialog(context: Context, content: str, **asked: str | bool) -> SafeString:
    """A question before something is done; `parts/_dialog.html` says what may be `asked`."""
    return render_to_string(
        "dashboard/parts/_dialog.html", {"csrf_token": context["csrf_token"], "text": content, **asked}
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", NARROW).replace("-", MINUS)


def _spoken(at: datetime, style: str) -> str:
    if style == "full":
        return f"{at.day} {at:%b}, {at:%H:%M}"
    days = (datetime.now(UTC).date() - at.date()).days
    if style == "clock" or days == 0:
        return f"{at:%H:%M}"
    return "Yesterday" if days == 1 else f"{at.day} {at:%b}"
