"""What a job may require: lines as pip takes them, but names and versions alone. One rule for form, REST and node."""

import hashlib

from packaging.requirements import InvalidRequirement, Requirement

from worker_agent.protocol.job.job_spec import REQUIREMENT_CHARS_MAX, REQUIREMENTS_MAX

# The packages that bring modules which programs for TensorFlow import. Of others the name is not guessed: whoever
# registered a package of that name may have meant harm.
_LIKE_THEIR_MODULE = (
    "datasets einops gymnasium h5py imageio librosa matplotlib networkx nltk numba optuna pandas plotly psutil pyarrow",
    "requests scipy seaborn sentencepiece spacy tensorboardX tiktoken tokenizers tqdm transformers",
)
PACKAGE_OF = {name: name for line in _LIKE_THEIR_MODULE for name in line.split()} | {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "keras_hub": "keras-hub",
    "keras_tuner": "keras-tuner",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability",
    "tensorflow_text": "tensorflow-text",
    "yaml": "pyyaml",
}


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
