"""A comparison as a picture: who lay in which slot when. Needs matplotlib, which only this module knows."""

from io import BytesIO

from ninfer_proxy.errors import CommandRefused
from ninfer_proxy.simulate.comparison import Comparison
from ninfer_proxy.simulate.replay import Result

INCHES_WIDE = 14.0
INCHES_A_SLOT = 0.16
HOUR = 3600.0


def picture(comparison: Comparison, kind: str) -> bytes:
    """The file's bytes. `kind` is a format that matplotlib writes, such as png or svg. One panel for each policy that has slots,
    a colour for each conversation. Errors: CommandRefused without matplotlib, for other formats, and where no policy has slots.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CommandRefused(
            "--plot needs matplotlib, which isn't installed: pip install 'ninfer-proxy[plot]'."
        ) from None
    shown = [result for result in comparison.results if result.stays]
    if not shown:
        raise CommandRefused("--plot shows slots, and the optimum has none: name another policy.")
    heights = [1 + max(stay.slot for stay in result.stays) for result in shown]
    tall = sum(heights) * INCHES_A_SLOT + 0.9 * len(shown)
    figure = Figure(figsize=(INCHES_WIDE, tall), layout="constrained")
    panels = figure.subplots(
        len(shown), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    colours = _colours(comparison)
    for panel, result, height in zip(panels[:, 0], shown, heights, strict=True):
        for stay in result.stays:
            panel.broken_barh(
                [(stay.begins / HOUR, (stay.ends - stay.begins) / HOUR)],
                (stay.slot - 0.45, 0.9),
                color=colours[stay.conversation],
            )
        panel.set_ylim(height - 0.4, -0.6)
        panel.set_ylabel("slot")
        panel.set_title(_title(comparison, result), loc="left", fontsize=9)
    panels[-1, 0].set_xlabel("hours")
    file = BytesIO()
    try:
        figure.savefig(file, format=kind, dpi=110)
    except ValueError as error:
        raise CommandRefused(f"--plot: {error}.") from None
    return file.getvalue()


def _title(comparison: Comparison, result: Result) -> str:
    return (
        f"{result.policy}: {result.prefilled_share:.2%} of prompt tokens prefilled, "
        f"{comparison.against_optimum(result):.2f} × the optimum, {result.evictions} evictions"
    )


def _colours(comparison: Comparison) -> dict[str, tuple[float, float, float]]:
    """A colour for each conversation, the hues of neighbours in time far apart."""
    from matplotlib.colors import hsv_to_rgb

    names = dict.fromkeys(request.conversation for request in comparison.requests)
    found = {}
    for index, name in enumerate(names):
        red, green, blue = hsv_to_rgb((index * 0.618 % 1, 0.5 + 0.35 * (index % 2), 0.85))
        found[name] = (float(red), float(green), float(blue))
    return found
