#!/usr/bin/env python3
"""Makes the golden ids of the tiny models with an independent engine: llama.cpp, by its Python package `xllamacpp`.

On demand, not in CI (a reference that follows its upstream would turn the tests with it):

    python3 -m venv /some/folder && /some/folder/bin/pip install xllamacpp
    for arch in llama llama-moe gemma3 qwen2 qwen3 qwen3moe; do
        cargo run -p plimsoll-tests --bin fixture -- tiny --arch $arch --out /some/folder/tiny-$arch.gguf
    done
    /some/folder/bin/python tests/reference/make_golden.py /some/folder/tiny-*.gguf

Each answer is greedy, and holds for every step the five likeliest ids with their log-probabilities. A test compares an
answer step by step, with the reference's own ids before the step, and only where the reference's margin is over 0.1 nats.
The file's SHA-256 goes into the golden file: a fixture that changed needs new golden ids, and the test says so.
"""

import hashlib
import json
import pathlib
import sys
import urllib.request

import xllamacpp

PROMPTS = [
    "The ship was loaded to the line",
    "in 1876, they said: \"not one ton more!\"",
    "a a a b",
    "Water finds the lowest place, and the master of the ship is the one who must know it before the water does.",
]
N_PREDICT = 32
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "data" / "golden"


def start(model_path):
    """A server with one thread and one sequence, f16 K and V."""
    params = xllamacpp.CommonParams()
    params.model.path = str(model_path)
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.n_gpu_layers = 0
    return xllamacpp.Server(params)


def post(server, path, body):
    """A request to the server's own HTTP port, on loopback."""
    request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def answer_of(server, prompt):
    """The prompt's ids (with BOS where the model asks for it), and the greedy answer."""
    prompt_ids = post(server, "/tokenize", {"content": prompt, "add_special": True, "parse_special": True})["tokens"]
    ids, top = [], []
    # Step by step: an answer in one go leaves out tokens that end inside a UTF-8 character.
    for _ in range(N_PREDICT):
        body = {"prompt": prompt_ids + ids, "n_predict": 1, "temperature": 0, "n_probs": 5, "return_tokens": True}
        reply = post(server, "/completion", body)
        step = reply["completion_probabilities"][0]
        ids.append(step["id"])
        top.append([[one["id"], round(one["logprob"], 4)] for one in step["top_logprobs"]])
    return {"prompt": prompt, "prompt_ids": prompt_ids, "ids": ids, "top": top}


def main():
    """Reads the command line."""
    if len(sys.argv) < 2:
        print("usage: make_golden.py MODEL.gguf…", file=sys.stderr)
        return 2
    for path in map(pathlib.Path, sys.argv[1:]):
        server = start(path)
        golden = {
            "source": f"xllamacpp {xllamacpp.__version__}" if hasattr(xllamacpp, "__version__") else "xllamacpp",
            "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "greedy": [answer_of(server, prompt) for prompt in PROMPTS],
        }
        text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
        # One answer a line.
        text = text.replace('{"prompt":', '\n{"prompt":') + "\n"
        (GOLDEN / f"{path.stem}.json").write_text(text)
        n_near = sum(top[0][1] - top[1][1] <= 0.1 for answer in golden["greedy"] for top in answer["top"])
        print(f"{path.stem}: {[len(a['ids']) for a in golden['greedy']]} ids, {n_near} near ties", flush=True)
        del server
    return 0


if __name__ == "__main__":
    sys.exit(main())
