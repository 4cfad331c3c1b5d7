"""Builds the manifests of deploy/kubernetes and checks them without a cluster."""

import pathlib
import re
import subprocess

import kubernetes_validate
import yaml

TREE = pathlib.Path(__file__).resolve().parents[2]
FOLDER = TREE / "deploy" / "kubernetes"
BUILDS = ("base", "overlays/cpu", "overlays/gpu", "overlays/gateway", "kserve")
VERSION = "1.32"
CUSTOM = yaml.safe_load((pathlib.Path(__file__).parent / "custom_resources.yaml").read_text())


def build(name, folder=FOLDER):
    """Returns the objects that kubectl would send for one of BUILDS."""
    result = subprocess.run(["kubectl", "kustomize", str(folder / name)], capture_output=True,
                            text=True, check=False)
    if result.returncode != 0:
        raise ValueError(f"{name}: {result.stderr.strip()}")
    return [item for item in yaml.safe_load_all(result.stdout) if item is not None]


def check(item):
    """Returns what is wrong with an object, as one line each."""
    kind = f"{item.get('apiVersion')} {item.get('kind')}"
    if kind in CUSTOM:
        fields = {"apiVersion!": "string", "kind!": "string", "metadata!": "any", **CUSTOM[kind]}
        return [f"{kind}: {error}" for error in _check_fields(item, fields, "")]
    return _check_own(item, kind)


def _check_own(item, kind):
    try:
        kubernetes_validate.validate(item, VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{kind}: {error.message}"]
    except kubernetes_validate.SchemaNotFoundError:
        return [f"{kind}: neither one of Kubernetes' own nor in custom_resources.yaml"]
    return []


def _check_container(value, path):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [value]}}
    return [f"{path}: {error}" for error in _check_own(pod, "container")]


TYPES = {"string": str, "integer": int, "boolean": bool}


def _check_fields(value, fields, path):
    if fields == "any":
        return []
    if fields == "container":
        return _check_container(value, path)
    if isinstance(fields, list):
        if not isinstance(value, list):
            return [f"{path}: expected a list"]
        return [e for i, item in enumerate(value) for e in _check_fields(item, fields[0], f"{path}[{i}]")]
    if isinstance(fields, str):
        if fields in TYPES:
            good = isinstance(value, TYPES[fields]) and (fields == "boolean" or not isinstance(value, bool))
        else:
            good = value in fields.split("|")
        return [] if good else [f"{path}: {value!r}, expected {fields}"]
    if not isinstance(value, dict):
        return [f"{path}: expected an object"]
    known = {name.rstrip("!"): child for name, child in fields.items()}
    errors = [f"{path}.{name.rstrip('!')}: missing" for name in fields
              if name.endswith("!") and name[:-1] not in value]
    for name, child in value.items():
        if name not in known and "*" not in known:
            errors.append(f"{path}.{name}: no such field")
        else:
            errors += _check_fields(child, known.get(name, known.get("*")), f"{path}.{name}")
    return errors


def serve_flags(binary):
    """Returns the names of serve's flags, as environment variables."""
    text = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return {"LOWKEY_" + name.upper().replace("-", "_") for name in re.findall(r"^  --([a-z-]+)", text, re.M)}
