"""What a job may require: lines as pip takes them, but names and versions alone. One rule for form, REST and node."""

import hashlib
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from worker_agent.protocol.job.job_spec import REQUIREMENT_CHARS_MAX, REQUIREMENTS_MAX

# The packages that bring modules which programs for TensorFlow import.
_LIKE_THEIR_MODULE = (
    "albumentations datasets einops gensim gym gymnasium h5py imageio joblib librosa lightgbm matplotlib networkx",
    "nltk numba openpyxl optuna pandas plotly psutil pyarrow pydot requests scipy seaborn sentencepiece shap",
    "soundfile spacy statsmodels tabulate tensorboardX tiktoken tokenizers torch tqdm transformers wandb xgboost",
)
_UNLIKE_THEIR_MODULE = {
    "Bio": "biopython",
    "Levenshtein": "levenshtein",
    "MySQLdb": "mysqlclient",
    "PIL": "pillow",
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "gitpython",
    "imblearn": "imbalanced-learn",
    "keras_hub": "keras-hub",
    "keras_tuner": "keras-tuner",
    "kerastuner": "keras-tuner",
    "mpl_toolkits": "matplotlib",
    "pkg_resources": "setuptools",
    "psycopg2": "psycopg2-binary",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "tensorflow_addons": "tensorflow-addons",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability",
    "tensorflow_text": "tensorflow-text",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
_PACKAGES = {name: name for line in _LIKE_THEIR_MODULE for name in line.split()} | _UNLIKE_THEIR_MODULE


class Package(NamedTuple):
    """What to install for a module. Where that is not `known`, the name is the module's own, which is often right; but
    whoever registered a package of that name may have meant harm, so a person is asked to look."""

    name: str
    known: bool


def package_of(module: str) -> Package:
    """The package that brings a module, such as `cv2`."""
    return Package(_PACKAGES.get(module, module), known=module in _PACKAGES)


def lines_of(text: str) -> list[str]:
    """The requirements in a text, without comments and empty lines."""
    bare = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [line for line in bare if line]


def problem_of(text: str) -> str:
    """What is wrong with the requirements, in a sentence; "" when nothing is."""
    lines = lines_of(text)
    if len(lines) > REQUIREMENTS_MAX:
        return f"at most {REQUIREMENTS_MAX} lines; there are {len(lines)}"
    for line in lines:
        if len(line) > REQUIREMENT_CHARS_MAX or not _is_name_and_version(line):
            return (
                f"{line[:60]!r} is not a package and its version, such as tqdm>=4: "
                "options, addresses and paths are not taken"
            )
    return ""


def digest_of(text: str) -> str:
    """Under which name the packages of these requirements are kept."""
    return hashlib.sha256("\n".join(sorted(lines_of(text))).encode()).hexdigest()


def _is_name_and_version(line: str) -> bool:
    """No address: the node's own index decides where packages come from."""
    try:
        return Requirement(line).url is None
    except InvalidRequirement:
        return False
