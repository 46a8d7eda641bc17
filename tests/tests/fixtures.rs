//! Fixtures have the same bytes for the same seed, and the bytes that the golden values were made with.

use plimsoll_kernels::dequant::dequantize_row;
use plimsoll_kernels::format::Format;
use plimsoll_tests::digest::Hashing;
use plimsoll_tests::fixture::rng::Rng;
use plimsoll_tests::fixture::storage::Storage;
use plimsoll_tests::fixture::tiny::{Tiny, Weights};
use plimsoll_tests::places::repository_root;

/// As the fixture maker and the kernels name them. The K formats last: they have no quantiser.
const FORMATS: [(Storage, Format); 11] = [
    (Storage::F32, Format::F32),
    (Storage::F16, Format::F16),
    (Storage::Bf16, Format::BF16),
    (Storage::Q8_0, Format::Q8_0),
    (Storage::Q4_0, Format::Q4_0),
    (Storage::Q4_1, Format::Q4_1),
    (Storage::Q5_0, Format::Q5_0),
    (Storage::Q5_1, Format::Q5_1),
    (Storage::Q4K, Format::Q4K),
    (Storage::Q5K, Format::Q5K),
    (Storage::Q6K, Format::Q6K),
];

fn digest(tiny: Tiny, weights: Weights, seed: u64) -> String {
    let mut out = Hashing::default();
    tiny.write(weights, seed, &mut out).expect("a hash takes every byte");
    out.hex()
}

#[test]
fn a_seed_decides_every_byte_of_a_tiny_model() {
    for tiny in Tiny::ALL {
        let of_seed = |seed| digest(tiny, Weights::Mixed, seed);
        assert_eq!(of_seed(7), of_seed(7), "{}", tiny.name());
        assert_ne!(of_seed(7), of_seed(8), "{}", tiny.name());
    }
}

#[test]
fn tiny_models_are_the_ones_the_golden_values_were_made_with() {
    for tiny in Tiny::ALL {
        for weights in Weights::ALL {
            let name = format!("tiny-{}-{}", tiny.name(), weights.name());
            let path = repository_root().join(format!("tests/data/golden/{name}.json"));
            let golden: serde_json::Value =
                serde_json::from_slice(&std::fs::read(path).expect("a golden file for each")).expect("JSON");
            let why = "the fixture maker changed: make new golden values (tests/reference/make_golden.py)";
            assert_eq!(golden["model_sha256"], digest(tiny, weights, 1), "{name}: {why}");
        }
    }
}

/// Mean and standard deviation of `weights`.
fn moments(weights: &[f32]) -> (f32, f32) {
    let n = weights.len() as f32;
    let mean = weights.iter().sum::<f32>() / n;
    (mean, (weights.iter().map(|w| (w - mean) * (w - mean)).sum::<f32>() / n).sqrt())
}

#[test]
fn random_weights_have_the_spread_that_was_asked_for_when_the_kernels_read_them() {
    for (storage, format) in FORMATS {
        let mut bytes = Vec::new();
        storage.put_random(64 * 256, 0.05, &mut Rng::new(1, "weights"), &mut bytes);
        assert_eq!(bytes.len() as u64, storage.n_bytes(64 * 256), "{storage:?}");
        let mut weights = vec![0.0; 64 * 256];
        dequantize_row(format, &bytes, &mut weights);
        let (mean, deviation) = moments(&weights);
        assert!(mean.abs() < 0.01 && (0.03..0.08).contains(&deviation), "{storage:?}: {mean} ± {deviation}");
    }
}

#[test]
fn rounded_weights_are_near_the_ones_that_were_rounded() {
    let mut rng = Rng::new(2, "weights");
    let weights: Vec<f32> = (0..1024).map(|_| rng.normal()).collect();
    // Largest error of a block with weights up to about 3: half a step, and for K formats no quantiser to check.
    let cases = FORMATS.into_iter().zip([0.0, 0.002, 0.02, 0.02, 0.5, 0.25, 0.25, 0.15]);
    for ((storage, format), most) in cases {
        let mut bytes = Vec::new();
        storage.put(&weights, &mut bytes);
        let mut read = vec![0.0; weights.len()];
        dequantize_row(format, &bytes, &mut read);
        let error = weights.iter().zip(&read).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error <= most, "{storage:?}: {error}");
    }
}
