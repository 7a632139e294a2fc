from rmutils.attention.decoding import register_attention as register_attention
from rmutils.attention.head_memory import memory_by_heads as memory_by_heads
from rmutils.attention.redirect import find_span as find_span
from rmutils.attention.redirect import redirect as redirect
from rmutils.attention.watching import watch as watch
from rmutils.core.catalog import stored_results as stored_results
from rmutils.core.errors import UserError as UserError
from rmutils.corpora.world.writing import Question as Question
from rmutils.evaluation.abilities.harness import lm_eval_model as lm_eval_model
from rmutils.evaluation.helmet import EvaluateConfig as EvaluateConfig
from rmutils.evaluation.helmet import evaluate as evaluate
from rmutils.evaluation.helmet.suite import register_dataset as register_dataset
from rmutils.heads.attention_kinds import attention_kinds as attention_kinds
from rmutils.heads.detection import detect as detect
from rmutils.heads.detection import success_rate as success_rate
from rmutils.heads.masking import choose as choose
from rmutils.heads.masking import export_masked as export_masked
from rmutils.heads.masking import mask_heads as mask_heads
from rmutils.heads.score_kinds import DetectConfig as DetectConfig
from rmutils.heads.score_kinds import register_score as register_score
from rmutils.heads.scores import HeadScores as HeadScores
from rmutils.models import LanguageModel as LanguageModel
from rmutils.models import load_model as load_model
from rmutils.models.engine.generation import generate as generate
from rmutils.models.families import register_family as register_family
from rmutils.models.in_memory import wrap as wrap
from rmutils.paper.tables import load_tables as load_tables
from rmutils.preference.pairs import make_pairs as make_pairs
from rmutils.preference.responses import ResponseConfig as ResponseConfig
from rmutils.preference.responses import respond as respond
from rmutils.preference.strategies import register_strategy as register_strategy
from rmutils.training.recipes import TrainRecipe as TrainRecipe
from rmutils.training.running import train as train

HOMES: dict[str, str]
__version__: str
