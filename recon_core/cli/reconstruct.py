"""`import-model`, `attacks`, `reconstruct`, `baseline` and `search`: from weights to candidates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from recon_core.cli.console import note, out
from recon_core.cli.places import (
    AnywayOption,
    ClusterOption,
    CpusOption,
    GpusOption,
    WorkersOption,
    check_cluster,
    used,
)
from recon_core.cli.stores import store_of
from recon_core.cli.training import perform_and_report
from recon_core.errors import InputError
from recon_core.store import Run, RunStore
from recon_core.store.ids import is_id

if TYPE_CHECKING:
    from recon_core.runs.models import AttackModel, ImportOptions

_WEIGHT_FILES = (".safetensors", ".pth", ".pt", ".ckpt", ".bin", ".th")

ModelOption = Annotated[
    str, typer.Option("--model", metavar="RUN|FILE", help="A trained run, or somebody else's .safetensors or .pth.")
]
ActivationOption = Annotated[
    str | None, typer.Option(help="Activation function of the model: relu, leaky_relu or gelu.", show_default="relu")
]
LayoutOption = Annotated[
    str | None,
    typer.Option(help="Layers of a convolutional model, e.g. 'conv(padding=1), relu, max(2), flatten, dense'."),
]
ShapeOption = Annotated[
    str | None, typer.Option(metavar="C,H,W", help="Shape of the inputs, where it does not follow from the file.")
]
RecipeOption = Annotated[
    str | None, typer.Option(help="The attack; [b]attacks[/b] lists them.", show_default="copies for images, else fast")
]
PresetOption = Annotated[str | None, typer.Option("--preset", "-p", help="Hyper-parameters the authors released.")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="One setting, e.g. alpha=150. Repeatable."),
]
CountOption = Annotated[
    int | None, typer.Option("--m", help="Number of candidates; at least twice that of the training samples.")
]
KnownInitOption = Annotated[
    bool,
    typer.Option(
        "--known-init", help="Explain only the change since initialisation, which is drawn again from its seed."
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", "-n", help="Name of the run.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id of the run.")]


def import_model(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A state dict saved by torch.save, or a .safetensors file.")
    ],
    input_shape: ShapeOption = None,
    activation: ActivationOption = None,
    layout: LayoutOption = None,
    mean: Annotated[
        str | None, typer.Option(metavar="R,G,B", help="Mean that was subtracted from pixels in [0, 1].")
    ] = None,
    std: Annotated[
        str | None, typer.Option(metavar="R,G,B", help="Standard deviation by which pixels were then divided.")
    ] = None,
    classes: Annotated[str | None, typer.Option(metavar="A,B,...", help="Names of the outputs, in order.")] = None,
    name: NameOption = None,
    quiet: QuietOption = False,
) -> None:
    """Import a checkpoint into the store and print what was inferred from it. Nothing in the file is executed."""
    from recon_core.config import parse_config
    from recon_core.runs.models import ImportOptions, read_foreign
    from recon_core.runs.requests import create_import

    shape = read_shape(input_shape)
    given = {"activation": activation, "layout": layout, "mean": mean, "std": std, "classes": classes}
    options = parse_config(ImportOptions, {key: value for key, value in given.items() if value is not None})
    read_foreign(file, shape, options)
    perform_and_report(create_import(store_of(context), file, shape, name, options), quiet)


def attacks(
    name: Annotated[str | None, typer.Argument(help="Show the settings of one attack.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the attacks for --recipe, or the settings of one of them."""
    from recon_core.attacks import ATTACKS, find_attack

    shown = list(ATTACKS.values()) if name is None else [find_attack(name)]
    if as_json:
        listed = [
            {"name": a.name, "description": a.description, "settings": a.setting_names, "presets": list(a.presets)}
            for a in shown
        ]
        typer.echo(json.dumps(listed))
        return
    if name is None:
        table = Table("attack", "what", "presets", box=None, pad_edge=False)
        for attack in shown:
            table.add_row(attack.name, attack.description, ", ".join(attack.presets))
    else:
        (attack,) = shown
        usual = attack.settings(recipe=attack.name).model_dump(mode="json")
        table = Table("setting", "default", "what", box=None, pad_edge=False)
        for setting, field in attack.settings.model_fields.items():
            value = "" if usual[setting] is None else str(usual[setting])
            table.add_row(setting, value, escape(field.description or ""))
    out().print(table)


def reconstruct(
    context: typer.Context,
    model: ModelOption,
    recipe: RecipeOption = None,
    preset: PresetOption = None,
    m: CountOption = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of random starts, whose candidates are pooled.", show_default="1")
    ] = None,
    settings: SettingsOption = None,
    known_init: KnownInitOption = False,
    input_shape: ShapeOption = None,
    name: NameOption = None,
    anyway: AnywayOption = False,
    quiet: QuietOption = False,
) -> None:
    """Reconstruct training samples from a model's weights. No training data is read.

    Settings come from the preset, then the options, then --set; later ones win. Ctrl-C leaves a run that
    `runs resume` continues.
    """
    from recon_core.attacks.registry import find_attack_preset
    from recon_core.runs.reconstruction import ReconstructConfig, attack_settings, check_request, warning_for
    from recon_core.runs.requests import create_reconstruction
    from recon_core.scheduling.memory import attack_memory, refuse_shortage

    base = find_attack_preset(preset, recipe)
    given = given_settings(settings, recipe=recipe, m=m, seeds=seeds)
    source = find_model(store_of(context), model, read_shape(input_shape))
    chosen = attack_settings(source.model, given, base)
    config = ReconstructConfig(model="", settings=chosen, known_init=known_init)
    check_request(source.model, config)
    refuse_shortage(attack_memory(source.model.architecture, chosen, source.model.samples), anyway=anyway)
    if (warning := warning_for(source.model, chosen)) is not None:
        note("warning: " + warning)
    owner = source.in_store(quiet)
    perform_and_report(create_reconstruction(source.store, config.model_copy(update={"model": owner.id}), name), quiet)


def baseline(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A trained run, or somebody else's weights.")],
    kind: Annotated[str, typer.Option(help="Which baseline: inversion, weights, kernels or untrained.")],
    recipe: RecipeOption = None,
    m: CountOption = None,
    settings: SettingsOption = None,
    ranges: Annotated[
        str, typer.Option(help="Ranges that inversion draws from: inversion or reconstruction.")
    ] = "inversion",
    input_shape: ShapeOption = None,
    name: NameOption = None,
    anyway: AnywayOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a baseline: model inversion, first-layer weights, kernels, or the attack on an untrained network."""
    from recon_core.config import parse_config
    from recon_core.runs.reconstruction import (
        INVERSION_STEPS,
        Baseline,
        ReconstructConfig,
        attack_settings,
        check_request,
    )
    from recon_core.runs.requests import create_reconstruction
    from recon_core.scheduling.memory import attack_memory, refuse_shortage

    given = given_settings(settings, recipe=recipe, m=m)
    if kind == Baseline.INVERSION:
        given.setdefault("iterations", INVERSION_STEPS)
    # Checked before the model is read.
    asked = parse_config(ReconstructConfig, {"model": "", "baseline": kind, "inversion_ranges": ranges})
    source = find_model(store_of(context), model, read_shape(input_shape))
    chosen = attack_settings(source.model, given)
    config = asked.model_copy(update={"settings": chosen})
    check_request(source.model, config)
    refuse_shortage(attack_memory(source.model.architecture, chosen, source.model.samples), anyway=anyway)
    owner = source.in_store(quiet)
    perform_and_report(create_reconstruction(source.store, config.model_copy(update={"model": owner.id}), name), quiet)


def search(
    context: typer.Context,
    model: ModelOption,
    trials: Annotated[int, typer.Option(help="Number of attacks.")] = 100,
    sampler: Annotated[str, typer.Option(help="How hyper-parameters are drawn: random, tpe or halving.")] = "tpe",
    ranges: Annotated[str, typer.Option(help="Ranges to search: haim2022 or buzaglo2023.")] = "haim2022",
    iterations: Annotated[int | None, typer.Option(help="Iterations of each attack.", show_default="5000")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="The attack of each trial; [b]attacks[/b] lists them.", show_default="paper")
    ] = None,
    m: CountOption = None,
    seed: Annotated[int, typer.Option(help="Seed for drawing hyper-parameters.")] = 0,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Database for the trials, e.g. postgresql+psycopg://me@host/db.",
            show_default="a journal in the run",
        ),
    ] = None,
    share: Annotated[
        str | None, typer.Option(metavar="NAME", help="Share the trials with searches of this name in the database.")
    ] = None,
    settings: SettingsOption = None,
    known_init: KnownInitOption = False,
    input_shape: ShapeOption = None,
    name: NameOption = None,
    anyway: AnywayOption = False,
    quiet: QuietOption = False,
) -> None:
    """Search the papers' ranges of lr_x, x_init_scale, lam_min and alpha; the candidates of all attacks are pooled.

    Trials are ranked by their final residual; no training image is looked at. Attacks are the papers' recipe in closed
    form and float32 unless --set says otherwise. Ctrl-C leaves a run that `runs resume` continues.
    """
    from recon_core.config import parse_config
    from recon_core.runs.reconstruction import warning_for
    from recon_core.scheduling.memory import refuse_shortage
    from recon_core.studies.needs import search_memory
    from recon_core.studies.requests import create_search
    from recon_core.studies.search import SearchConfig, check_search, check_storage, trial_settings
    from recon_core.studies.trials import SearchSettings

    check_storage(storage, share)
    places = {"workers": workers, "cluster": cluster, "cpus": cpus, "gpus": gpus}
    asked = parse_config(SearchSettings, {"trials": trials, "sampler": sampler, "ranges": ranges, "seed": seed})
    given = given_settings(settings, recipe=recipe, m=m, iterations=iterations)
    source = find_model(store_of(context), model, read_shape(input_shape))
    chosen = trial_settings(source.model, given)
    whole = {"settings": asked.model_copy(update={"attack": chosen}), "known_init": known_init}
    config = parse_config(SearchConfig, {"model": "", **whole, **used(places), "storage": storage, "share": share})
    check_search(source.model, config)
    refuse_shortage(search_memory(source.model.architecture, chosen, config, source.model.samples), anyway=anyway)
    check_cluster(config)
    if (warning := warning_for(source.model, chosen)) is not None:
        note("warning: " + warning)
    owner = source.in_store(quiet)
    perform_and_report(create_search(source.store, config.model_copy(update={"model": owner.id}), name), quiet)


@dataclass(frozen=True)
class _Source:
    """The model asked for, and where it is: a run, or a file that is not in the store yet."""

    store: RunStore
    model: AttackModel
    run: Run | None = None
    file: Path | None = None
    input_shape: tuple[int, ...] | None = None
    options: ImportOptions | None = None

    def in_store(self, quiet: bool) -> Run:
        """The run that holds the model; a file is taken in first, and what was inferred is said."""
        if self.run is not None:
            return self.run
        assert self.file is not None
        from recon_core.kinds import perform
        from recon_core.runs import StopFlag
        from recon_core.runs.models import imported_before
        from recon_core.runs.requests import create_import

        run = imported_before(self.store, self.file, self.input_shape, self.options)
        if run is None:
            run = create_import(self.store, self.file, self.input_shape, options=self.options)
            perform(run, StopFlag())
        if not quiet:
            note(f"{self.file} is in the store as {run.id}")
            for sentence in (run.result() or {})["notes"]:
                note("  " + sentence)
        return run


def find_model(
    store: RunStore, text: str, input_shape: tuple[int, ...] | None, options: Mapping[str, str | None] | None = None
) -> _Source:
    """A run of that id, or a file of that name; `options` holds the `ImportOptions` of a file, where given."""
    from recon_core.config import parse_config
    from recon_core.runs.models import ImportOptions, foreign_model, model_of, read_foreign

    file = Path(text)
    known = is_id(text) and (store.root / text).is_dir()
    if known or not (file.is_file() or file.suffix in _WEIGHT_FILES):
        run = store.open(text)
        if input_shape is not None:
            raise InputError(f"--input-shape goes with a file; run {run.id} knows the shape of its inputs")
        return _Source(store, model_of(run), run=run)
    of_file = parse_config(ImportOptions, {key: value for key, value in (options or {}).items() if value is not None})
    model = foreign_model(read_foreign(file, input_shape, of_file).network, of_file)
    return _Source(store, model, file=file, input_shape=input_shape, options=of_file)


def read_shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--input-shape is written as 3,32,32 or as 2, got {text!r}") from None


def given_settings(settings: Sequence[str] | None, **options: Any) -> dict[str, Any]:
    """Options that were used, then --set."""
    from recon_core.attacks import AttackSettings
    from recon_core.config import assign

    values = used(options)
    for setting in settings or ():
        assign(AttackSettings, values, setting)
    return values
