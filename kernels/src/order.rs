//! The two fixed orders of addition, as plain code: this is their definition.
//!
//! - **8 chains** for integer formats: chain `b mod 8` takes block `b` of 32 elements.
//! - **32 chains** for everything in floats: chain `k mod 32` takes element `k`.
//!
//! Both end in a halving tree. Neither depends on how wide a machine's vectors are.

/// Chains of an integer product.
pub const INT_CHAINS: usize = 8;
/// Chains of a float sum.
pub const FLOAT_CHAINS: usize = 32;

/// `((c0+c4)+(c2+c6)) + ((c1+c5)+(c3+c7))`.
pub(crate) fn tree8(c: [f32; INT_CHAINS]) -> f32 {
    ((c[0] + c[4]) + (c[2] + c[6])) + ((c[1] + c[5]) + (c[3] + c[7]))
}

/// `c[i] + c[i+16]`, then + 8, + 4, + 2, + 1.
pub(crate) fn tree32(mut c: [f32; FLOAT_CHAINS]) -> f32 {
    for half in [16, 8, 4, 2, 1] {
        for i in 0..half {
            c[i] += c[i + half];
        }
    }
    c[0]
}

/// Sum in 32 chains.
pub fn sum(x: &[f32]) -> f32 {
    let mut chains = [0.0; FLOAT_CHAINS];
    for part in x.chunks(FLOAT_CHAINS) {
        for (c, &x) in chains.iter_mut().zip(part) {
            *c += x;
        }
    }
    tree32(chains)
}

/// Σ x·y in 32 chains of fused multiply-adds: `c = fma(x, y, c)`.
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut chains = [0.0; FLOAT_CHAINS];
    for (x, y) in x.chunks(FLOAT_CHAINS).zip(y.chunks(FLOAT_CHAINS)) {
        for ((c, &x), &y) in chains.iter_mut().zip(x).zip(y) {
            *c = x.mul_add(y, *c);
        }
    }
    tree32(chains)
}
