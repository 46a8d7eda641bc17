//! The figures of a plan's notes, in the order of the sentences.

use plimsoll_decide::plan::Note;
use serde_json::{Value, json};

pub(super) fn figures(note: &Note) -> Value {
    match note {
        Note::ContextBeyondTraining { n_ctx, n_ctx_train } => {
            json!({"kind": "context_beyond_training", "n_ctx": n_ctx.0, "n_ctx_train": n_ctx_train.0})
        }
        Note::LineAboveLimit { line, limit } => {
            json!({"kind": "line_above_limit", "line_bytes": line.0, "limit_bytes": limit.0})
        }
        Note::LineWithinMargin { gap, margin } => {
            json!({"kind": "line_within_margin", "gap_bytes": gap.0, "margin_bytes": margin.0})
        }
        Note::SlackLow { reserve, slack } => {
            json!({"kind": "slack_low", "reserve_bytes": reserve.0, "slack_bytes": slack.0})
        }
        Note::ReserveTooSmall { reserve, needed } => {
            json!({"kind": "reserve_too_small", "reserve_bytes": reserve.0, "needed_bytes": needed.0})
        }
        Note::ReserveSuggested { reserve, suggested, lowest_free } => json!({
            "kind": "reserve_suggested", "reserve_bytes": reserve.0, "suggested_bytes": suggested.0,
            "lowest_free_bytes": lowest_free.0,
        }),
        Note::CacheUnderFloor { n_experts, n_slots } => {
            json!({"kind": "cache_under_floor", "n_experts": n_experts, "n_slots": n_slots})
        }
        Note::LayersDiffer { asked, placed, has_experts } => {
            json!({"kind": "layers_differ", "asked": asked, "placed": placed, "has_experts": has_experts})
        }
        Note::ImagesOnCpu => json!({"kind": "images_on_cpu"}),
        Note::UnderLine { reserve, slack } => {
            json!({"kind": "under_line", "reserve_bytes": reserve.0, "slack_bytes": slack.0})
        }
        Note::CardUnused { index } => json!({"kind": "card_unused", "gpu": index}),
    }
}
