"""Schemathesis holds Forebay's demo to the API document: what it promises, and what it must refuse.

The document comes from the file FOREBAY_OPENAPI, else from the server. Before the run it is narrowed to what
the demo can serve, so that most generated requests reach a model; nothing of it is made wider.
FOREBAY_EXAMPLES (25) says how many requests an operation is fuzzed with, FOREBAY_SEED (20) which.
Further arguments go to `schemathesis run`, for example `--include-path /v1/rerank`.
"""

import copy
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import schemathesis
import yaml

BASE_URL = os.environ["FOREBAY_BASE_URL"]
CALLER = os.environ["FOREBAY_CALLER_TOKEN"]
OPERATOR = os.environ["FOREBAY_OPERATOR_TOKEN"]
DOCUMENT = os.environ.get("FOREBAY_OPENAPI")

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)
# What keys of this run begin with.
RUN = f"run-{time.time_ns()}"
CALLS = itertools.count()
# The demo's pools, by endpoint.
POOLS = {
    "/v1/chat/completions": "main_text",
    "/v1/completions": "main_text",
    "/v1/responses": "main_text",
    "/v1/embeddings": "main_embedding",
    "/v1/images/generations": "main_image",
    "/v1/images/edits": "main_image",
    "/v1/audio/speech": "main_audio",
    "/v1/audio/transcriptions": "main_speech2text",
    "/v1/moderations": "main_moderation",
    "/v1/rerank": "main_rerank",
}
# What /api/generate may be asked: capability, operation, input.
KINDS = [
    ("text", "generate", "ChatInput"),
    ("image", "generate", "ImageInput"),
    ("image", "edit", "ImageEditInput"),
    ("audio", "generate", "SpeechInput"),
    ("speech2text", "generate", "TranscriptionInput"),
    ("embedding", "generate", "EmbeddingInput"),
    ("rerank", "generate", "RerankInput"),
    ("moderation", "generate", "ModerationInput"),
]
# Operations that are not run, and why.
LEFT_OUT = {
    "adminEvents": "it never ends",
    "adminPutPool": "it would change the pools that the run stands on",
    "adminDeletePool": "the same",
    "adminPutModel": "the same, of models",
    "adminDeleteModel": "the same",
    "adminPutProvider": "the same, of providers",
    "adminDeleteProvider": "the same",
    "adminPutAccount": "the same, of accounts",
    "adminDeleteAccount": "the same",
    "adminBind": "the same",
    "adminUnbind": "the same",
    "adminPutCaller": "it could lock out the caller that the run uses",
    "adminDeleteCaller": "the same",
    "adminDeleteToken": "the same",
    "adminGrant": "it could take the credits that the run spends",
    "adminPutSettings": "it would change how the run is routed",
    "adminForceBreaker": "it would close the models that the run asks",
}
CONFIG = """
seed = {seed}
continue-on-failure = true
request-timeout = 20
max-stream-events = 50
suppress-health-check = ["all"]
warnings = false

[auth.openapi]
caller = {{bearer = "{caller}"}}
callerKey = {{api_key = "{caller}"}}
operator = {{bearer = "{operator}"}}

[generation]
max-examples = {examples}

[phases.stateful]
# No operation of the run makes something that another one deletes.
enabled = false

[phases.coverage]
generate-duplicate-query-parameters = true
unexpected-methods = ["GET", "PUT", "POST", "DELETE", "PATCH", "TRACE", "OPTIONS"]

[checks.positive_data_acceptance]
# 402: what a request costs at most depends on its numbers, and whether it is covered on the caller's credits.
expected-statuses = ["2xx", "401", "402", "403", "404", "409", "429"]

[checks.negative_data_rejection]
expected-statuses = ["400", "401", "402", "403", "404", "405", "409", "413"]

[[operations]]
# Each of its kinds of request gets its share. A deadline of a millisecond is good, and 504 its answer.
include-operation-id = "generate"
generation = {{max-examples = {many}}}
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", "504"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "402", "403", "404", "409", "429", "504"]

[[operations]]
# In a form everything is a text: a number where a text is due is none.
include-operation-id = ["editImages", "transcribe"]
phases.fuzzing.checks.negative_data_rejection.enabled = false

[[operations]]
# An import is tried and not done; that its rows fit together no schema can say.
include-operation-id = "adminImport"
parameters = {{"query.dry_run" = "1"}}
checks = {{positive_data_acceptance = {{enabled = false}}}}

[[operations]]
# Their addresses are signed, and none can be guessed.
include-operation-id = "showResult"
checks = {{positive_data_acceptance = {{enabled = false}}}}

[[operations]]
# That a time lies ahead no schema can say.
include-operation-id = "adminCreateToken"
checks = {{positive_data_acceptance = {{enabled = false}}}}

[[operations]]
# An account that is bound to no model can't be tried.
include-operation-id = "adminTestAccount"
checks = {{positive_data_acceptance = {{enabled = false}}}}
"""


@schemathesis.hook
def map_body(_, body):
    """To a schema 8.0 is a whole number; whoever means one writes 8."""
    if isinstance(body, float) and body.is_integer() and abs(body) < 2**53:
        return int(body)
    if isinstance(body, list):
        return [map_body(_, item) for item in body]
    if isinstance(body, dict):
        return {name: map_body(_, item) for name, item in body.items()}
    return body


@schemathesis.hook
def before_call(_, case, kwargs):
    """Most good keys become keys of their own: with another request's there is nothing but a conflict."""
    key = (case.headers or {}).get("Idempotency-Key")
    number = next(CALLS)
    if isinstance(key, str) and number % 5 and re.fullmatch("[!-~]{1,255}", key):
        case.headers["Idempotency-Key"] = f"{RUN}-{number}"


def read_document():
    if DOCUMENT:
        return yaml.safe_load(Path(DOCUMENT).read_text())
    with urllib.request.urlopen(f"{BASE_URL}/api/openapi.json") as response:
        return json.load(response)


def flat(document, schema):
    """The schema of an object without `$ref` and `allOf` at its top: its own and their properties together."""
    schema = copy.deepcopy(schema)
    parts = schema.pop("allOf", [])
    if reference := schema.pop("$ref", None):
        parts.append(document["components"]["schemas"][reference.rsplit("/", 1)[1]])
    for part in parts:
        part = flat(document, part)
        schema["properties"] = {**schema.get("properties", {}), **part.pop("properties", {})}
        schema["required"] = sorted({*schema.get("required", []), *part.pop("required", [])})
        schema = {**part, **schema}
    return schema


def of_the_demo(document):
    """Narrows the document: the demo's pools, and files that are there."""
    schemas = document["components"]["schemas"]
    schemas["FileUrl"] = {"type": "string", "enum": [PIXEL]}
    # The simulator writes down as many numbers as it is asked for.
    schemas["EmbeddingInput"]["properties"]["dimensions"] = {"enum": [1, 8, 1536, None]}
    for path, pool in POOLS.items():
        for content in document["paths"][path]["post"]["requestBody"]["content"].values():
            content["schema"] = flat(document, content["schema"])
            content["schema"]["properties"]["model"] = {"type": "string", "enum": [pool]}
            for example in content.get("examples", {}).values():
                for field in ["image", "file"]:
                    if field in example["value"]:
                        example["value"][field] = PIXEL
    generate = document["paths"]["/api/generate"]["post"]["requestBody"]["content"]["application/json"]
    kinds = [kind_of_request(document, *kind) for kind in KINDS]
    # A deadline that is short ends a request before anything else of it is seen: only one kind has any.
    hurried = copy.deepcopy(kinds[0])
    for kind in kinds:
        del kind["properties"]["deadline_ms"]
    generate["schema"] = {"anyOf": [*kinds, hurried]}
    for example in generate["examples"].values():
        for field in ["image", "audio"]:
            if field in example["value"]["input"]:
                example["value"]["input"][field] = PIXEL
    if DOCUMENT:
        # The server need not serve the document that it is held to.
        del document["paths"]["/api/openapi.json"]
    return document


def kind_of_request(document, capability, operation, input):
    schema = copy.deepcopy(document["components"]["schemas"]["GenerateRequest"])
    fields = schema["properties"]
    fields["model_group"] = {"type": "string", "enum": [f"main_{capability}"]}
    # Beside a model_group it is refused, and tells no schema of another field.
    del fields["model"]
    fields["capability"] = {"enum": [capability, None]}
    fields["operation"] = {"enum": ["edit"] if operation == "edit" else ["generate", None]}
    fields["input"] = flat(document, document["components"]["schemas"][input])
    # It stands beside the input here.
    fields["input"]["properties"].pop("stream", None)
    # No model of the demo thinks.
    fields["thinking"] = {"enum": [False, None]}
    if capability != "text":
        fields["stream"] = {"enum": [False, None]}
    schema["required"] = ["input", *(["operation"] if operation == "edit" else [])]
    # Without a name the default pool of the capability serves, and text is what nobody has to ask for.
    if capability != "text":
        asked = {"required": ["capability"], "properties": {"capability": {"const": capability}}}
        schema["anyOf"] = [{"required": ["model_group"]}, asked]
    return schema


def main():
    examples, seed = int(os.environ.get("FOREBAY_EXAMPLES", "25")), int(os.environ.get("FOREBAY_SEED", "20"))
    with tempfile.TemporaryDirectory() as folder:
        document, config = Path(folder, "openapi.json"), Path(folder, "schemathesis.toml")
        document.write_text(json.dumps(of_the_demo(read_document())))
        config.write_text(CONFIG.format(caller=CALLER, operator=OPERATOR, seed=seed, examples=examples, many=examples * 8))
        program = Path(sys.executable).with_name("schemathesis")
        command = [str(program), "--config-file", str(config), "run", str(document), "--url", BASE_URL]
        for name in LEFT_OUT:
            command += ["--exclude-operation-id", name]
        # Its hooks are in this file.
        here = {"SCHEMATHESIS_HOOKS": Path(__file__).stem, "PYTHONPATH": str(Path(__file__).parent.resolve())}
        return subprocess.run(command + sys.argv[1:], cwd=folder, env=os.environ | here).returncode


if __name__ == "__main__":
    sys.exit(main())
