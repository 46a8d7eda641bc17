//! Properties of the sampler: determinism, which tokens are possible, and how often each comes.

use plimsoll_worker::sampler::{Params, SampleError, sample, top_log_probs, uniform};
use proptest::prelude::*;

fn params(seed: u64) -> Params {
    Params { temperature: 1.0, seed, ..Params::greedy() }
}

/// Ids ranked by logit, equal ones by id: the obvious way.
fn ranked(logits: &[f32]) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    ids.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
    ids
}

/// Probabilities in f64.
fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f64> = logits.iter().map(|&l| (f64::from(l - max) / temperature).exp()).collect();
    let z: f64 = exps.iter().sum();
    exps.iter().map(|e| e / z).collect()
}

/// Coarse logits, so that ties are common.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec((-24_i32..24).prop_map(|q| q as f32 * 0.25), 1..400)
}

proptest! {
    #[test]
    fn the_same_arguments_give_the_same_token(
        logits in logits(), seed: u64, position: u32, top_k in 0_u32..50, top_p in 0.05_f32..1.0, min_p in 0.0_f32..0.5,
        temperature in 0.1_f32..3.0, history in prop::collection::vec(0_u32..400, 0..20),
    ) {
        let params = Params {
            temperature, top_k, top_p, min_p, repeat_penalty: 1.3, repeat_last_n: 8, seed,
        };
        let first = sample(&logits, &params, &history, position);
        prop_assert_eq!(&first, &sample(&logits, &params, &history, position));
        prop_assert!((first.unwrap() as usize) < logits.len());
    }

    #[test]
    fn greedy_takes_the_best_and_the_lower_id_of_equals(logits in logits(), seed: u64, position: u32) {
        let best = ranked(&logits)[0];
        prop_assert_eq!(sample(&logits, &Params::greedy(), &[], position), Ok(best));
        prop_assert_eq!(sample(&logits, &Params { top_k: 1, ..params(seed) }, &[], position), Ok(best));
        for top_p in [0.0, -0.0, 1e-9] {
            prop_assert_eq!(sample(&logits, &Params { top_p, ..params(seed) }, &[], position), Ok(best));
        }
        // More than there are is all of them.
        for top_k in [401, 1 << 24, u32::MAX] {
            let id = sample(&logits, &Params { top_k, ..params(seed) }, &[], position);
            prop_assert!(id.is_ok_and(|id| (id as usize) < logits.len()));
        }
    }

    #[test]
    fn filters_keep_what_they_say(
        logits in logits(), seed: u64, position: u32, top_k in 1_u32..20, top_p in 0.1_f32..0.99, min_p in 0.01_f32..0.9,
    ) {
        let rank = ranked(&logits);
        let p = softmax(&logits, 1.0);
        let id = sample(&logits, &Params { top_k, ..params(seed) }, &[], position).unwrap();
        prop_assert!(rank[..rank.len().min(top_k as usize)].contains(&id));

        let id = sample(&logits, &Params { top_p, ..params(seed) }, &[], position).unwrap();
        // Those before it in rank must not already have all of top_p.
        let before: f64 = rank.iter().take_while(|&&r| r != id).map(|&r| p[r as usize]).sum();
        prop_assert!(before < f64::from(top_p) + 1e-5, "{} before it, top_p {}", before, top_p);

        let id = sample(&logits, &Params { min_p, ..params(seed) }, &[], position).unwrap();
        prop_assert!(p[id as usize] >= f64::from(min_p) * p[rank[0] as usize] - 1e-6);
    }

    #[test]
    fn the_temperature_widens_nothing(logits in logits(), seed: u64, position: u32, top_p in 0.1_f32..0.9) {
        let kept = |temperature: f32, seed: u64| {
            sample(&logits, &Params { temperature, top_p, ..params(seed) }, &[], position).unwrap()
        };
        let rank = ranked(&logits);
        let p = softmax(&logits, 1.0);
        let hot = kept(50.0, seed);
        let before: f64 = rank.iter().take_while(|&&r| r != hot).map(|&r| p[r as usize]).sum();
        prop_assert!(before < f64::from(top_p) + 1e-5);
    }

    #[test]
    fn a_penalty_of_one_changes_nothing(logits in logits(), seed: u64, history in prop::collection::vec(0_u32..500, 0..20)) {
        let with = Params { repeat_penalty: 1.0, repeat_last_n: 64, ..params(seed) };
        prop_assert_eq!(sample(&logits, &with, &history, 3), sample(&logits, &params(seed), &[], 3));
    }

    #[test]
    fn a_logit_that_is_no_number_is_named(mut logits in logits(), at: prop::sample::Index, which in 0_usize..3) {
        let id = at.index(logits.len());
        logits[id] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][which];
        let error = sample(&logits, &params(1), &[], 0).unwrap_err();
        prop_assert!(matches!(error, SampleError::NotFinite { id: found, .. } if found as usize == id), "{:?}", error);
    }
}

#[test]
fn the_penalty_pushes_recent_tokens_down_whatever_their_sign() {
    let penalised = |logits: &[f32], history: &[u32], repeat_last_n| {
        let params = Params { repeat_penalty: 2.0, repeat_last_n, ..Params::greedy() };
        sample(logits, &params, history, 0).unwrap()
    };
    assert_eq!(penalised(&[4.0, 3.0], &[0], 8), 1);
    assert_eq!(penalised(&[-1.0, -1.5], &[0], 8), 1);
    assert_eq!(penalised(&[4.0, 3.0], &[0, 1, 1], 2), 0, "only the last two tokens are recent");
    assert_eq!(penalised(&[4.0, 1.5], &[0, 0, 0], 8), 0, "once, however often it occurs");
    assert_eq!(penalised(&[4.0, 3.0], &[99], 8), 0, "an id over the vocabulary has no logit");
}

#[test]
fn impossible_parameters_are_named() {
    let rows: [(&str, Params); 10] = [
        ("temperature", Params { temperature: -0.1, ..Params::greedy() }),
        ("temperature", Params { temperature: f32::NAN, ..Params::greedy() }),
        ("temperature", Params { temperature: f32::INFINITY, ..Params::greedy() }),
        ("top_p", Params { top_p: -0.1, ..Params::greedy() }),
        ("top_p", Params { top_p: f32::NAN, ..Params::greedy() }),
        ("top_p", Params { top_p: 1.1, ..Params::greedy() }),
        ("min_p", Params { min_p: -1.0, ..Params::greedy() }),
        ("min_p", Params { min_p: f32::NAN, ..Params::greedy() }),
        ("repeat_penalty", Params { repeat_penalty: 0.0, ..Params::greedy() }),
        ("repeat_penalty", Params { repeat_penalty: f32::NAN, ..Params::greedy() }),
    ];
    for (want, params) in rows {
        match sample(&[1.0, 2.0], &params, &[], 0) {
            Err(SampleError::Parameter { field, .. }) => assert_eq!(field, want),
            other => panic!("{params:?} gave {other:?}"),
        }
    }
    assert_eq!(sample(&[], &Params::greedy(), &[], 0), Err(SampleError::Empty));
}

#[test]
fn a_tiny_temperature_is_greedy_and_a_huge_one_is_flat() {
    let logits = [1.0, 3.0, 2.0];
    for position in 0..200 {
        let cold = Params { temperature: 1e-30, ..params(7) };
        assert_eq!(sample(&logits, &cold, &[], position), Ok(1));
    }
    let hot = Params { temperature: 1e30, ..params(7) };
    let seen: std::collections::BTreeSet<u32> =
        (0..200).map(|position| sample(&logits, &hot, &[], position).unwrap()).collect();
    assert_eq!(seen.len(), 3);
}

/// Chi-squared of the counts against the probabilities.
fn chi_squared(counts: &[u32], p: &[f64]) -> f64 {
    let n: f64 = counts.iter().map(|&c| f64::from(c)).sum();
    counts.iter().zip(p).map(|(&c, p)| (f64::from(c) - n * p).powi(2) / (n * p)).sum()
}

/// Fixed seeds, so this passes always or never; the bound is the 99.9th percentile for the degrees of freedom.
#[test]
fn tokens_come_as_often_as_their_probabilities_say() {
    let logits: Vec<f32> = (0..12).map(|i| ((i * 7) % 12) as f32 * 0.3).collect();
    for temperature in [0.7, 1.0, 2.0] {
        let p = softmax(&logits, f64::from(temperature));
        // Over positions of one answer, and over seeds at one position: neither may repeat a pattern.
        for by_seed in [false, true] {
            let mut counts = vec![0; logits.len()];
            for i in 0..40_000_u32 {
                let (seed, position) = if by_seed { (u64::from(i), 17) } else { (17, i) };
                let params = Params { temperature, ..params(seed) };
                counts[sample(&logits, &params, &[], position).unwrap() as usize] += 1;
            }
            let chi2 = chi_squared(&counts, &p);
            assert!(chi2 < 31.3, "temperature {temperature}, by seed {by_seed}: chi² {chi2} with 11 degrees");
        }
    }
}

#[test]
fn random_numbers_are_uniform_and_of_their_own_for_each_seed_and_position() {
    let mut buckets = [0_u32; 64];
    for seed in 0..256 {
        for position in 0..256 {
            let u = uniform(seed, position);
            assert!((0.0..1.0).contains(&u));
            buckets[(u * 64.0) as usize] += 1;
        }
    }
    let chi2 = chi_squared(&buckets, &[1.0 / 64.0; 64]);
    assert!(chi2 < 103.4, "chi² {chi2} with 63 degrees");
    assert_ne!(uniform(1, 2), uniform(2, 1));
    assert_ne!(uniform(0, 0), uniform(0, 1));
}

#[test]
fn log_probabilities_are_those_of_the_softmax() {
    let logits: Vec<f32> = (0..1000).map(|i| ((i * 37) % 1000) as f32 * 0.01).collect();
    let p = softmax(&logits, 1.0);
    let top = top_log_probs(&logits, 5).unwrap();
    assert_eq!(top.iter().map(|t| t.0).collect::<Vec<_>>(), ranked(&logits)[..5]);
    for (id, log_p) in top {
        assert!((f64::from(log_p) - p[id as usize].ln()).abs() < 1e-5);
    }
    assert_eq!(top_log_probs(&logits, 0).unwrap(), []);
}
