"""Run at the start of every page's kernel: figures are SVG in the colours of the theme, shell cells print once."""


def _in_page(figure):
    import io
    import re

    colours = {
        "#222832": "currentColor",
        "#000000": "currentColor",
        "#333333": "currentColor",
        "#ffffff": "var(--pst-color-background)",
        "#1f5a96": "var(--figure-blue)",
        "#1f77b4": "var(--figure-blue)",
        "#c1440e": "var(--figure-red)",
        "#4b8b3b": "var(--figure-green)",
        "#7b4fa0": "var(--figure-purple)",
        "#8a6d00": "var(--figure-yellow)",
        "#667788": "var(--figure-grey)",
        "#999999": "var(--figure-grey)",
        "#cccccc": "var(--figure-band)",
    }
    painted = any(ax.images or any(c.get_array() is not None for c in ax.collections) for ax in figure.axes)
    if not painted:  # the dark end of matplotlib's colours, as lines
        colours |= {"#440154": "var(--figure-purple)", "#3e4a89": "var(--figure-blue)"}
    file = io.StringIO()
    figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None}, transparent=True)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    for colour, name in colours.items():
        svg = svg.replace(colour, name)
    width = re.search(r'<svg [^>]*?width="([\d.]+)pt"', svg, re.DOTALL).group(1)
    svg = re.sub(r'(<svg [^>]*?)width="[\d.]+pt"', r"\1", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?)height="[\d.]+pt"', r"\1", svg, count=1, flags=re.DOTALL)
    label = getattr(figure, "get_label", str)() or "Figure"
    head = f'<svg role="img" aria-label="{label}" fill="currentColor" style="max-width:{float(width) * 1.5:.0f}px" '
    narrow = figure.get_gid() == "narrow"  # drawn for a phone, in place of the figure before it
    return f'<div class="figure{" card" * painted}{" narrow" * narrow}">{svg.replace("<svg ", head, 1)}</div>'


def _register():
    """IPython forgets formatters of figures when pyplot is imported, so this is done after every cell."""
    import sys

    if "matplotlib.figure" in sys.modules:
        html = get_ipython().display_formatter.formatters["text/html"]  # noqa: F821
        html.for_type(sys.modules["matplotlib.figure"].Figure, _in_page)


def _bash(line, cell):  # noqa: ARG001 - magics have both
    """Run the commands, show what they print in one piece, and end the build if one of them fails."""
    import subprocess

    done = subprocess.run(
        ["bash", "-e", "-c", cell], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(done.stdout, end="")
    done.check_returncode()


get_ipython().display_formatter.formatters["text/html"].for_type_by_name("matplotlib.figure", "Figure", _in_page)  # noqa: F821
get_ipython().events.register("post_execute", _register)  # noqa: F821
get_ipython().register_magic_function(_bash, "cell", "bash")  # noqa: F821
