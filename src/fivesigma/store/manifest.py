"""The manifest of a saved model: rendered in one way only, so that any change shows."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import fivesigma
from fivesigma.errors import StoreError
from fivesigma.store.archive import MANIFEST, Archive, is_plain_name
from fivesigma.store.migrations import FORMAT

_VERSION = re.compile(r"[0-9][0-9a-z.+]{0,29}")
_KEYS = {"format", "fivesigma", "versions", "model", "files", "digest"}
_OPTIONAL = {"probe"}  # since format 2
_MOST = 1 << 28  # bytes; more is no manifest


def render(content: dict[str, Any]) -> bytes:
    """Text of a manifest, with the digest of all the rest."""
    body = {key: value for key, value in content.items() if key != "digest"}
    return _text({**body, "digest": hashlib.sha256(_text(body)).hexdigest()})


def _text(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False).encode()


def file_entry(content: bytes) -> dict[str, Any]:
    """What the manifest says of a file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_manifest(archive: Archive, where: str) -> dict[str, Any]:
    """Read and check the manifest; the model in it is not looked at yet."""
    if archive.sizes[MANIFEST] > _MOST:
        raise StoreError(f"{MANIFEST} in {where} has {archive.sizes[MANIFEST]:,} bytes, too many for a manifest")
    text = archive.read(MANIFEST)
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError) as err:
        reason = "it is nested too deep" if isinstance(err, RecursionError) else str(err)
        raise StoreError(f"{MANIFEST} in {where} is not JSON: {reason}") from err
    number = content.get("format") if isinstance(content, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        raise StoreError(f"{MANIFEST} in {where} is not the manifest of a saved model: it has no format number")
    if number > FORMAT:
        writer = content.get("fivesigma")
        needed = f"fivesigma {writer}" if isinstance(writer, str) and _VERSION.fullmatch(writer) else "a newer version"
        raise StoreError(
            f"{where} has format {number}, and fivesigma {fivesigma.__version__} reads formats up to {FORMAT}; it was "
            f"saved by {needed}: install that or a later one"
        )
    if number < 1:
        raise StoreError(f"{where} has format {number}, which never was")
    # Rendering it again must give the same bytes: then not even a blank was changed.
    try:
        same = render(content) == text
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise StoreError(f"{MANIFEST} in {where} does not match its own digest: it was changed after it was written")
    mappings = ("files", "model")
    if set(content) - _OPTIONAL != _KEYS or not all(isinstance(content[key], dict) for key in mappings):
        raise StoreError(f"{MANIFEST} in {where} has not the parts {', '.join(sorted(_KEYS))}")
    versions = content["versions"]
    if not isinstance(versions, dict) or not all(
        isinstance(v, str) for v in (content["fivesigma"], *versions.values())
    ):
        raise StoreError(f"{MANIFEST} in {where} does not say by which versions it was written")
    return dict(content)


def read_files(archive: Archive, manifest: dict[str, Any], where: str) -> dict[str, bytes]:
    """Read the files that the manifest lists, which must be all there are, and compare their hashes."""
    listed = manifest["files"]
    for name in listed:
        if not is_plain_name(name) or name == MANIFEST:
            raise StoreError(f"{MANIFEST} in {where} lists {name[:60]!r}, a name that leaves the model")
    present = set(archive.sizes) - {MANIFEST}
    for name in sorted(set(listed) - present):
        raise StoreError(f"{name} is missing in {where}; copy the model again")
    for name in sorted(present - set(listed)):
        raise StoreError(f"{where} holds {name}, which its manifest does not list; remove it if you trust the rest")
    files = {}
    for name, entry in listed.items():
        if not isinstance(entry, dict) or set(entry) != {"bytes", "sha256"}:
            raise StoreError(f"{MANIFEST} in {where} says neither size nor hash of {name}")
        if archive.sizes[name] != entry["bytes"]:
            raise StoreError(f"{name} in {where} has {archive.sizes[name]:,} bytes, but was saved with another size")
        files[name] = archive.read(name)
        if file_entry(files[name]) != entry:
            raise StoreError(f"{name} in {where} was changed after it was saved: its hash does not match")
    return files
