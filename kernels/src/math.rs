//! exp, ln, tanh and the activation functions, by one polynomial each.
//!
//! libm differs between machines, and a result that differs by one bit changes a token. So every transcendental function of
//! the engine and the sampler is here: a fixed sequence of f32 additions, multiplications, fused multiply-adds and divisions,
//! each rounded once by IEEE rules. `avx2` holds the same sequences on 8 lanes; a GPU can repeat them literally.
//!
//! Largest errors against f64, over a dense sample of the whole range (tested):
//! exp 1.1 ulp, ln 1.0, tanh 1.5, silu 2.5 where the result is a normal number; gelu_tanh 2e-7 · |x| (for negative x its
//! relative error grows with the slope of its exponent, 30 ulp at −4, of results that are then tiny).
//! The coefficients are Chebyshev fits of the remainder terms, rounded to f32.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;

/// Above it exp overflows in every case; the product at the end turns it into +inf.
const EXP_HIGH: f32 = 89.0;
/// Below it exp is 0 in every case.
const EXP_LOW: f32 = -104.0;
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 with its low 12 bits zero: n · LN2_HIGH is exact for the n that exp and ln need.
const LN2_HIGH: f32 = 0.693_359_4;
/// ln 2 − LN2_HIGH.
const LN2_LOW: f32 = -2.121_944_4e-4;
/// (exp r − 1 − r) / r² on |r| ≤ ½ ln 2, lowest power first.
const EXP_POLY: [f32; 5] = [0.5, 0.166_665_76, 0.041_666_467, 0.008_363_18, 0.001_393_365_1];
/// (ln((1+s)/(1−s)) − 2s) / s³ in powers of s², on s² ≤ 0.0295.
const LN_POLY: [f32; 4] = [0.666_666_7, 0.400_001_23, 0.285_507_62, 0.233_318_66];
/// (tanh x − x) / x³ in powers of x², on |x| ≤ TANH_SMALL.
const TANH_POLY: [f32; 6] =
    [-0.333_333_34, 0.133_333_04, -0.053_959_407, 0.021_769_96, -0.008_346_978, 0.002_295_838_7];
/// Under it tanh is a polynomial: 1 − 2/(exp 2x + 1) would cancel.
const TANH_SMALL: f32 = 0.625;
/// 2·√(2/π): twice the factor in GELU's tanh approximation.
const GELU_SCALE: f32 = 1.595_769;
/// The cubic's coefficient in GELU's tanh approximation.
const GELU_CUBIC: f32 = 0.044_715;

/// Horner's rule by fused multiply-adds, lowest power first.
fn poly<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    coefficients.into_iter().rev().reduce(|sum, c| sum.mul_add(x, c)).unwrap_or(0.0)
}

/// eˣ. Subnormal results are kept, exp(0) is exactly 1, exp(−inf) exactly 0, NaN stays NaN.
pub fn exp(x: f32) -> f32 {
    // Written as the vector instruction computes it: a NaN passes through both.
    let x = if EXP_HIGH < x { EXP_HIGH } else { x };
    let x = if EXP_LOW > x { EXP_LOW } else { x };
    let n = (x * LOG2_E).round_ties_even();
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let p = (r * r).mul_add(poly(r, EXP_POLY), r) + 1.0;
    // 2ⁿ in two factors, so that neither leaves the range of normal numbers.
    let n = n as i32;
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n - half)
}

/// 2ⁿ for −126 ≤ n ≤ 127.
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23).cast_unsigned())
}

/// Natural logarithm. ln(0) = −inf, of a negative number NaN, of +inf +inf.
pub fn ln(x: f32) -> f32 {
    if x.is_nan() || x < 0.0 {
        return f32::NAN;
    }
    if x == 0.0 {
        return f32::NEG_INFINITY;
    }
    if x == f32::INFINITY {
        return x;
    }
    // Subnormals are brought into range first.
    let (x, bias) = if x < f32::MIN_POSITIVE { (x * 33_554_432.0, 25) } else { (x, 0) };
    // x = 2ⁿ · m with m in [√½, √2): the offset makes the exponent field step at √½.
    let offset = std::f32::consts::FRAC_1_SQRT_2.to_bits();
    let steps = x.to_bits().wrapping_sub(offset) & 0xff80_0000;
    let m = f32::from_bits(x.to_bits().wrapping_sub(steps));
    let n = ((steps.cast_signed() >> 23) - bias) as f32;
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let square = s * s;
    let half_f2 = 0.5 * f * f;
    let tail = s.mul_add(half_f2 + square * poly(square, LN_POLY), n * LN2_LOW);
    n.mul_add(LN2_HIGH, f - (half_f2 - tail))
}

/// Hyperbolic tangent.
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    if a < TANH_SMALL {
        let square = x * x;
        return (x * square).mul_add(poly(square, TANH_POLY), x);
    }
    (1.0 - 2.0 / (exp(a + a) + 1.0)).copysign(x)
}

/// x · sigmoid(x), as x / (1 + exp(−x)). For finite x.
pub fn silu(x: f32) -> f32 {
    x / (exp(-x) + 1.0)
}

/// GELU by its tanh approximation, as x · sigmoid(2z) with z = √(2/π)·(x + 0.044715·x³): ½(1 + tanh z) is the same number
/// and would cancel for negative x. For finite x.
pub fn gelu_tanh(x: f32) -> f32 {
    let inner = (x * x).mul_add(GELU_CUBIC, 1.0);
    x / (exp(-(x * GELU_SCALE) * inner) + 1.0)
}

/// Turns scores into probabilities, in place: exp(s − max), divided by their sum in the 32-chain order.
///
/// The max is taken ascending with `s > max`, so a NaN never becomes the max, and then makes its own result NaN.
/// Masked entries must be left out by the caller. An empty slice stays empty.
pub fn softmax(scores: &mut [f32]) {
    let max = scores.iter().fold(f32::NEG_INFINITY, |max, &s| if s > max { s } else { max });
    for s in scores.iter_mut() {
        *s = exp(*s - max);
    }
    let sum = crate::order::sum(scores);
    for s in scores.iter_mut() {
        *s /= sum;
    }
}

#[cfg(test)]
mod tests {
    use super::{exp, gelu_tanh, ln, silu, softmax, tanh};

    /// Every `step`-th float between two positive ones, and its negative.
    fn sample(from: f32, to: f32, step: usize) -> impl Iterator<Item = f32> {
        (from.to_bits()..=to.to_bits()).step_by(step).map(f32::from_bits).flat_map(|x| [x, -x])
    }

    /// Distance from the true value in units of the result's last place.
    fn ulps(got: f32, expect: f64) -> f64 {
        let exponent = expect.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
        (f64::from(got) - expect).abs() / (exponent - 23.0).exp2()
    }

    fn check(name: &str, f: fn(f32) -> f32, exact: fn(f64) -> f64, xs: impl Iterator<Item = f32>, bound: f64) {
        let (worst, at) = xs.fold((0.0, 0.0), |worst: (f64, f32), x| {
            let error = ulps(f(x), exact(f64::from(x)));
            if error > worst.0 { (error, x) } else { worst }
        });
        assert!(worst <= bound, "{name}({at}) is off by {worst} ulp");
    }

    #[test]
    fn errors_stay_within_the_documented_ulps() {
        let sigmoid = |x: f64| x / (1.0 + (-x).exp());
        let gelu = |x: f64| {
            let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            x / (1.0 + (-2.0 * z).exp())
        };
        check("exp", exp, f64::exp, sample(1e-8, 87.0, 1009), 1.1);
        check("ln", ln, f64::ln, sample(1e-38, 3e38, 1009).filter(|x| *x > 0.0), 1.0);
        check("tanh", tanh, f64::tanh, sample(1e-8, 20.0, 1009), 1.5);
        check("silu", silu, sigmoid, sample(1e-8, 80.0, 1009), 2.5);
        for x in sample(1e-8, 20.0, 1009) {
            let error = (f64::from(gelu_tanh(x)) - gelu(f64::from(x))).abs();
            assert!(error <= 2e-7 * f64::from(x).abs(), "gelu_tanh({x}) is off by {error}");
        }
    }

    #[test]
    fn special_values() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(1000.0), f32::INFINITY);
        assert!(exp(-100.0) > 0.0, "subnormal, not flushed");
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && silu(f32::NAN).is_nan());
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(0.0), f32::NEG_INFINITY);
        assert!(ln(-1.0).is_nan());
        assert_eq!(tanh(50.0), 1.0);
        assert_eq!(tanh(-50.0), -1.0);
        assert_eq!(silu(1e4), 1e4);
        assert_eq!(gelu_tanh(-1e4), 0.0);
    }

    #[test]
    fn softmax_sums_to_one() {
        let mut scores: Vec<f32> = (0..1000_u16).map(|i| f32::from(i % 37) * 0.5).collect();
        softmax(&mut scores);
        assert!((scores.iter().map(|p| f64::from(*p)).sum::<f64>() - 1.0).abs() < 1e-6);
        assert!(scores[36] > scores[35]);
        softmax(&mut []);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    #[allow(unsafe_code, reason = "calls vector kernels behind run-time detection")]
    fn avx2_has_the_scalar_bits() {
        use super::avx2;
        use std::arch::x86_64::{__m256, _mm256_loadu_ps, _mm256_storeu_ps};

        #[target_feature(enable = "avx2,fma")]
        fn eight(f: unsafe fn(__m256) -> __m256, x: &[f32; 8]) -> [f32; 8] {
            let mut out = [0.0; 8];
            // SAFETY: arrays of 8 floats; the machine has what `f` needs, as this function does.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), f(_mm256_loadu_ps(x.as_ptr()))) };
            out
        }
        if !(std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")) {
            println!("skipped: this machine has no AVX2 and FMA");
            return;
        }
        type Scalar = fn(f32) -> f32;
        type Vector = unsafe fn(__m256) -> __m256;
        let functions: [(&str, Scalar, Vector); 3] =
            [("exp", exp, avx2::exp), ("silu", silu, avx2::silu), ("gelu_tanh", gelu_tanh, avx2::gelu_tanh)];
        let all: Vec<f32> = (0..u32::MAX).step_by(4099).map(f32::from_bits).collect();
        for (name, scalar, vector) in functions {
            for x in all.as_chunks::<8>().0 {
                // SAFETY: the extensions were detected above.
                let got = unsafe { eight(vector, x) };
                for (x, got) in x.iter().zip(got) {
                    let expect = scalar(*x);
                    let same = expect.to_bits() == got.to_bits() || (expect.is_nan() && got.is_nan());
                    assert!(same, "{name}({x}) is {expect} or {got}");
                }
            }
        }
    }
}
