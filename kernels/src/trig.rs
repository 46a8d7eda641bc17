//! sin, cos, ln and exp in f64 for the angles of rotary positions: own code, so that every host makes the same table.
//!
//! Only `rope` uses this, a few thousand times per step at most: clear before fast.

/// π/2 in three parts, each the rounding of what the ones before left.
const HALF_PI: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_7e-33];
/// ln 2 in two parts.
const LN_2: [f64; 2] = [std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17];

/// Sum of a power series from its smallest term: `1 ∓ x²/(a(a+1)) (1 ∓ x²/((a+2)(a+3)) (…))`, `terms` deep.
fn nested_series(square: f64, first: u32, terms: u32) -> f64 {
    (0..terms).rev().fold(1.0, |inner, term| {
        let n = f64::from(first + 2 * term);
        1.0 - square / (n * (n + 1.0)) * inner
    })
}

/// (cos x, sin x), within 1e-15 for |x| up to 2³⁰.
pub(crate) fn cos_sin(x: f64) -> (f64, f64) {
    let n = (x / HALF_PI[0]).round_ties_even();
    // Each product is exact inside the fused multiply-add, so r carries the error of the last part only.
    let r = HALF_PI.iter().fold(x, |r, part| (-n).mul_add(*part, r));
    let square = r * r;
    // |r| ≤ π/4: the tenth term is under 1e-19.
    let (cos, sin) = (nested_series(square, 1, 10), r * nested_series(square, 2, 10));
    match (n as i64).rem_euclid(4) {
        0 => (cos, sin),
        1 => (-sin, cos),
        2 => (-cos, -sin),
        3.. | i64::MIN..0 => (sin, -cos),
    }
}

/// Natural logarithm of a positive normal number.
pub(crate) fn ln(x: f64) -> f64 {
    let offset = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let steps = x.to_bits().wrapping_sub(offset) & 0xfff0_0000_0000_0000;
    let m = f64::from_bits(x.to_bits().wrapping_sub(steps));
    let n = (steps.cast_signed() >> 52) as f64;
    let s = (m - 1.0) / (m + 1.0);
    // ln m = 2 (s + s³/3 + s⁵/5 + …); s² ≤ 0.0295, the 13th term is under 1e-20.
    let series = (0..13).rev().fold(0.0, |sum, k| sum * s * s + 1.0 / f64::from(2 * k + 1));
    n.mul_add(LN_2[0], (2.0 * s).mul_add(series, n * LN_2[1]))
}

/// eˣ for |x| ≤ 700.
pub(crate) fn exp(x: f64) -> f64 {
    let n = (x / LN_2[0]).round_ties_even();
    let r = LN_2.iter().fold(x, |r, part| (-n).mul_add(*part, r));
    // |r| ≤ 0.347: r¹⁷/17! is under 1e-22.
    let series = (1..=17).rev().fold(1.0, |inner, k| 1.0 + r / f64::from(k) * inner);
    series * f64::from_bits(((n as i64 + 1023) << 52).cast_unsigned())
}
