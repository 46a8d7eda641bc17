//! Which experts each token of a step uses, and with what weights. Pure.

use plimsoll_kernels::math;

/// The tokens of one expert.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses {
    /// Rows of the step that use it, ascending.
    pub rows: Vec<u32>,
    /// For each of them, where its output belongs: row · top_k + rank.
    pub parts: Vec<u32>,
}

/// The routes of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Routes {
    /// One entry per expert, by id.
    pub by_expert: Vec<Uses>,
    /// `[n × top_k]`: the weight of each token's expert of rank k.
    pub weights: Vec<f32>,
}

/// Chooses `top_k` of `n_experts` for each row of scores `[n_experts]`; equal scores go to the lower id.
///
/// `normalise`: the weights are the softmax over the chosen scores. A softmax over all scores whose chosen values are then
/// divided by their sum is the same function, as the common denominator falls out: so Mixtral and Qwen3-MoE share it.
/// Otherwise the weights are the chosen values of the softmax over all scores.
pub fn route(scores: impl Iterator<Item = Vec<f32>>, n_experts: usize, top_k: usize, normalise: bool) -> Routes {
    let mut routes = Routes { by_expert: vec![Uses::default(); n_experts], weights: Vec::new() };
    let mut ranked: Vec<usize> = Vec::with_capacity(n_experts);
    for (row, mut scores) in (0_u32..).zip(scores) {
        ranked.clear();
        ranked.extend(0..n_experts);
        ranked.sort_unstable_by(|&a, &b| (scores[b] + 0.0).total_cmp(&(scores[a] + 0.0)).then(a.cmp(&b)));
        ranked.truncate(top_k);
        for (rank, &expert) in (0_u32..).zip(&ranked) {
            let uses = &mut routes.by_expert[expert];
            uses.rows.push(row);
            uses.parts.push(row * top_k as u32 + rank);
        }
        if !normalise {
            math::softmax(&mut scores);
        }
        let first = routes.weights.len();
        routes.weights.extend(ranked.iter().map(|&expert| scores[expert]));
        if normalise {
            math::softmax(&mut routes.weights[first..]);
        }
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_go_to_the_lower_id_and_weights_follow_the_rank() {
        let routes = route([vec![1.0, 3.0, 3.0, 2.0]].into_iter(), 4, 2, true);
        assert_eq!(routes.by_expert[1], Uses { rows: vec![0], parts: vec![0] });
        assert_eq!(routes.by_expert[2], Uses { rows: vec![0], parts: vec![1] });
        assert_eq!(routes.weights, [0.5, 0.5]);
    }

    #[test]
    fn each_token_has_top_k_parts_and_its_weights_sum_to_one() {
        let rows: Vec<Vec<f32>> =
            (0..17).map(|r| (0..8).map(|e| ((r * 7 + e * 5) % 11) as f32 * 0.3 - 1.0).collect()).collect();
        let routes = route(rows.into_iter(), 8, 3, true);
        let mut parts: Vec<u32> = routes.by_expert.iter().flat_map(|u| u.parts.clone()).collect();
        parts.sort_unstable();
        assert_eq!(parts, (0..17 * 3).collect::<Vec<u32>>());
        for weights in routes.weights.chunks(3) {
            assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            assert!(weights.is_sorted_by(|a, b| a >= b), "{weights:?}");
        }
    }

    #[test]
    fn a_score_that_is_not_a_number_does_not_panic() {
        let routes = route([vec![f32::NAN, 1.0, f32::NEG_INFINITY]].into_iter(), 3, 2, true);
        assert_eq!(routes.weights.len(), 2);
    }
}
