"""Options that several commands share, named inside as the library names its parameters.

Where a command takes many at once, they reach it as one record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

import fivesigma
from fivesigma._tools.files import refuse_special
from fivesigma.errors import InputError

if TYPE_CHECKING:
    from fivesigma.significance import Utility

INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C
WORDS, FORCE = (f"{__name__}.{what}" for what in ("words", "force"))  # keys of what the context keeps for all to see
PATH = click.Path(path_type=Path)

F = TypeVar("F", bound=Callable[..., Any])


class OutputFile(click.Path):
    """A file to write, refused before the work if it could not be written after it; needs `force_option`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Refuse a folder, a place that is not there, and a file that is, unless --force was given."""
        path = Path(str(super().convert(value, param, ctx)))
        refuse_special(path)
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file")
        if path.exists() and not (ctx and ctx.meta[FORCE]):
            raise InputError(f"{path} is there already; choose another name or add --force")
        return path


class NumberOr(click.ParamType):  # type: ignore[type-arg] # in older versions it takes none
    """A number, or a word in its place: None itself would mean that the option was not given."""

    name = "number"

    def __init__(self, word: str, kind: type[float] = float) -> None:
        self.word, self.kind = word, kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        """Refuse other words."""
        if str(value).lower() == self.word:
            return self.word
        try:
            return self.kind(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {self.word}.", param, ctx)


def column_or_none(value: Any) -> Any:
    """What the library means by a column, or a number, that is not there."""
    return None if value == "none" else value


def names(text: str) -> list[str]:
    """Names that commas divide."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _remember_force(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    ctx.meta[FORCE] = value
    return value


# It is read before the names of files, which may be there already. The second is for commands that do not ask for it.
_force = functools.partial(click.option, "--force", is_flag=True, is_eager=True, callback=_remember_force)
force_option = _force(help="Replace the output if it is there.")
overwrite_option = _force(help="Replace the output if it is there.", expose_value=False)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
seed_option = click.option("--seed", "random_state", type=click.IntRange(0), default=0, metavar="N",
                           help="Seed all random numbers.")  # fmt: skip
jobs_option = click.option("--jobs", "n_jobs", type=click.IntRange(1), metavar="N",
                           callback=lambda _ctx, _option, value: -1 if value is None else value,
                           help="Use this many threads; all cores by default.")  # fmt: skip
tree_option = click.option("--tree", metavar="NAME",
                           help="Read this TTree or RNTuple of ROOT files; needed if a file has several. "
                           "'nominal + scores' reads friend trees of one file together.")  # fmt: skip
untrusted_option = click.option("--untrusted", is_flag=True,
                                help="Try a model from an untrusted source in a child process first.")  # fmt: skip
yields_option = click.option("--yields", nargs=2, type=float, metavar="S B",
                             help="Scale the weights so that all events together stand for this expected signal and "
                             "background; by default the weights stay as they are.")  # fmt: skip
replicas_option = click.option("--replicas", "n_boot", type=click.IntRange(1), default=1000, metavar="N",
                               help="Make this many replicas of the bootstrap.")  # fmt: skip
min_background_option = click.option("--min-background", type=click.FloatRange(0), default=0.0, metavar="B",
                                     help="Keep this expected background in each category.")  # fmt: skip
goal_option = click.option("--goal", type=click.Choice(["discovery", "measurement"]), default="discovery",
                           help="Look for the largest significance, or for the smallest uncertainty of the signal "
                           "strength.")  # fmt: skip
quote_option = click.option("--quote", type=PATH, metavar="SCORES",
                            help="Evaluate and quote the categories on these other events.")  # fmt: skip
pyhf_option = click.option("--pyhf", type=OutputFile(), metavar="FILE",
                           help="Write a HistFactory workspace (JSON) to this file.")  # fmt: skip
combine_option = click.option("--combine", type=PATH, metavar="FOLDER",
                              help="Write datacard.txt and shapes.root for combine to this folder.")  # fmt: skip


class RegistryOption(click.Option):
    """A name of one of the library's registries, which is imported when the help is asked for; the library checks it.

    `describe` lists the names, which take the place of the braces in the help.
    """

    def __init__(self, *flags: Any, describe: Callable[[], str], **settings: Any) -> None:
        super().__init__(*flags, **settings)
        self.describe = describe

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """What the help shows."""
        self.help = str(self.help).format(self.describe())
        return super().get_help_record(ctx)


def utility_options(command: F) -> F:
    """How the significance is formed."""
    b_reg = click.option("--b-reg", type=click.FloatRange(0), metavar="B", help="Add this constant to the background.")
    utility = click.option("--utility", cls=RegistryOption, default="ams2", metavar="NAME",
                           describe=lambda: import_module("fivesigma.significance").describe_utilities(),
                           help="Form the significance as one of {}.")  # fmt: skip
    return utility(b_reg(command))


class ScoreOptions(NamedTuple):
    """What the commands on files of scores have in common."""

    signal: str | None
    utility: str
    b_reg: float | None
    yields: tuple[float, float] | None
    n_boot: int
    as_json: bool
    stream: bool

    def read(self, path: Path) -> Any:
        """Events of a file of scores; with --stream the file itself, which is read part by part."""
        kind: Any = fivesigma.ScoredFiles if self.stream else fivesigma.ScoredEvents.read
        return kind(path, self.signal, self.yields)

    @property
    def measure(self) -> Utility:
        """The significance that was asked for."""
        from fivesigma.significance import resolve_utility

        return resolve_utility(self.utility, self.b_reg)

    def refuse_stream(self, **given: Any) -> None:
        """Refuse options that need all events in memory."""
        for option in (option for option, there in given.items() if there and self.stream):
            raise click.UsageError(f"--{option} needs all events in memory; leave --stream out.")


def scores_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options of the commands on files of scores, which reach the command as one `ScoreOptions`."""

    @click.option("--signal", metavar="LABEL",
                  help="Take this label as signal; needed if it is not a known one such as s.")  # fmt: skip
    @utility_options
    @yields_option
    @replicas_option
    @json_option
    @click.option("--stream", is_flag=True,
                  help="Read SCORES, which may be a pattern of several files, part by part; intervals are then "
                  "standard errors.")  # fmt: skip
    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(asked=ScoreOptions(**{name: given.pop(name) for name in ScoreOptions._fields}), **given)

    return run


class ProcessValue(click.ParamType):  # type: ignore[type-arg] # in older versions it takes none
    """PROCESS=VALUE as a pair."""

    name = "PROCESS=VALUE"

    def __init__(self, kind: Any) -> None:
        self.kind = click.types.convert_type(kind)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Divide at the first equals sign, and read what stands behind it."""
        process, equals, text = value.partition("=")
        if not (process and equals):
            self.fail(f"{value!r} is not of the form PROCESS=VALUE.", param, ctx)
        return process, self.kind.convert(text, param, ctx)


def _number_or_name(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _by_process(texts: tuple[str, ...], source: dict[str, Any]) -> str | dict[str, Any] | None:
    """One text for all events; or, as PROCESS=TEXT of processes of --sample, one for each."""
    pairs = [text.partition("=") for text in texts]
    if texts and all(process in source["path"] and text[:1] != "=" for process, _, text in pairs):
        return {process: column_or_none(text) for process, _, text in pairs}
    if len(texts) > 1:
        raise click.UsageError("Give --weight and --where once, or as PROCESS=TEXT for each process of --sample.")
    return texts[0] if texts else None


def event_files(metavar: str, signal: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Files of events, or of processes with their normalisation, which reach the command as one `source`.

    That is what `load_events` takes by these names. `signal` is the help of the option --signal.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.argument("files", nargs=-1, metavar=metavar)
        @click.option("--sample", "samples", multiple=True, type=ProcessValue(names), metavar="PROCESS=FILES",
                      help="Read this process from these files, separated by commas, in place of files of all "
                      "processes; may be repeated. --signal then names the processes that are signal, separated by "
                      "commas.")  # fmt: skip
        @click.option("--signal", metavar="LABEL", help=signal)
        @click.option("--luminosity", type=NumberOr("none"), metavar="L",
                      help="Normalise processes to this luminosity, in 1/fb; none leaves weights as they "
                      "stand.")  # fmt: skip
        @click.option("--cross-section", multiple=True, type=ProcessValue(NumberOr("none")), metavar="PROCESS=PB",
                      help="Scale the weights of this process to this cross section, in pb; none if its weights are "
                      "expected yields already; may be repeated.")  # fmt: skip
        @click.option("--sum-of-weights", multiple=True, type=ProcessValue(_number_or_name), metavar="PROCESS=SUM",
                      help="Divide by this sum of weights, or by what ROOT files have as HISTOGRAM, HISTOGRAM[BIN] or "
                      "TREE/BRANCH; may be repeated.")  # fmt: skip
        @functools.wraps(command)
        def run(files: tuple[str, ...], samples: tuple[Any, ...], signal: str | None, **given: Any) -> None:
            if bool(files) == bool(samples):
                raise click.UsageError(f"Give {metavar} or --sample PROCESS=FILES, one of them.")
            normalised = {name: given.pop(name) for name in ("luminosity", "cross_section", "sum_of_weights")}
            normalised = {name: value for name, value in normalised.items() if value not in (None, ())}
            if files and normalised:
                raise click.UsageError(
                    "--luminosity, --cross-section and --sum-of-weights need --sample PROCESS=FILES."
                )
            source: dict[str, Any] = {"path": files}
            if signal is not None:
                source["signal"] = signal if files else [] if signal == "none" else names(signal)
            if samples:
                source["path"] = {process: [] for process, _ in samples}
                for process, some in samples:
                    source["path"][process] += some
            for texts in (given, given.get("reading", {})):
                for name in [name for name in ("weight", "cut") if name in texts]:
                    texts[name] = _by_process(texts[name], source)
                    if isinstance(texts[name], dict):
                        source[name], texts[name] = texts[name], None
            for name, value in normalised.items():
                several = isinstance(value, tuple)
                source[name] = {k: column_or_none(v) for k, v in value} if several else column_or_none(value)
            command(source=source, **given)

        return run

    return decorate


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options that read events otherwise than in training, which reach the command as one `reading`."""

    @click.option("--label", metavar="COLUMN",
                  help="Read labels from this column, or no labels with the word none; by default from the column of "
                  "the training, if it is there.")  # fmt: skip
    @click.option("--weight", multiple=True, metavar="COLUMN",
                  help="Read weights from this column, or no weights with the word none; by default from the column "
                  "of the training, if it is there. PROCESS=COLUMN for each process of --sample.")  # fmt: skip
    @click.option("--process", metavar="COLUMN",
                  help="Read processes from this column, or no processes with the word none; by default from the "
                  "column of the training, if it is there.")  # fmt: skip
    @click.option("--missing", type=NumberOr("none"), metavar="CODE",
                  help="Read this number as a missing value; by default the code of the training; none if no number "
                  "means that.")  # fmt: skip
    @click.option("--where", "cut", multiple=True, metavar="CUT",
                  help="Read only the events that pass this condition, by default that of the training; none reads "
                  "all events. PROCESS=CUT for each process of --sample.")  # fmt: skip
    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(reading={name: given.pop(name) for name in ("label", "weight", "process", "missing", "cut")}, **given)

    return run


def like_training(
    model: Any, source: dict[str, Any], reading: dict[str, Any], *, rows: int | None = None, **more: Any
) -> Any:
    """Files as the training events of a model were read, but for the options that are given; in chunks of `rows`."""
    from fivesigma.datasets import EventStream

    if isinstance(source["path"], dict) and (reading["label"] or reading["process"]):
        raise InputError("--sample says what an event is; leave --label and --process out")
    given = {name: column_or_none(value) for name, value in (reading | more).items() if value is not None}
    return EventStream.like(model, **source, **given, rows=rows)


def print_notes(notes: Any) -> None:
    """Print notes, a line each, beside the results."""
    for note in notes:
        click.echo(f"note: {note}", err=True)
