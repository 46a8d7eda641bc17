//! Norms, rotations, activation functions, additions: a row at a time.
#![allow(unsafe_code, reason = "calls the vector kernels")]

use super::Level;
use crate::backend::{Activation, RopePairs};
use crate::{math, order};

/// `out = (x · r) · weight` with `r = 1 / sqrt(Σx²/n + eps)`, the sum in 32 chains of fused multiply-adds.
pub(super) fn rms_norm(level: Level, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    match level {
        Level::Portable => {
            let r = norm_factor(order::dot(x, x), x.len(), eps);
            for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
                *out = x * r * w;
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only chosen on machines that have its instructions.
        Level::Avx2 => unsafe { super::avx2::rows::rms_norm(x, weight, eps, out) },
    }
}

/// The same in place.
pub(super) fn rms_norm_in_place(level: Level, x: &mut [f32], weight: &[f32], eps: f32) {
    match level {
        Level::Portable => {
            let r = norm_factor(order::dot(x, x), x.len(), eps);
            for (x, &w) in x.iter_mut().zip(weight) {
                *x = *x * r * w;
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only chosen on machines that have its instructions.
        Level::Avx2 => unsafe { super::avx2::rows::rms_norm_in_place(x, weight, eps) },
    }
}

/// 1 / sqrt(mean + eps), by division and square root: no approximate instruction.
pub(super) fn norm_factor(sum: f32, n: usize, eps: f32) -> f32 {
    1.0 / (sum / n as f32 + eps).sqrt()
}

/// `out = act(gate) · up`.
pub(super) fn glu(level: Level, activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match level {
        Level::Portable => {
            let act = match activation {
                Activation::Silu => math::silu,
                Activation::GeluTanh => math::gelu_tanh,
            };
            for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
                *out = act(gate) * up;
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only chosen on machines that have its instructions.
        Level::Avx2 => unsafe { super::avx2::rows::glu(activation, gate, up, out) },
    }
}

/// Turns each pair (a, b) of a head: `a' = fma(a, cos, −(b·sin))`, `b' = fma(b, cos, a·sin)`.
pub(super) fn rope_head(level: Level, head: &mut [f32], cos: &[f32], sin: &[f32], pairs: RopePairs) {
    match level {
        Level::Portable => {
            let half = cos.len();
            for (i, (&cos, &sin)) in cos.iter().zip(sin).enumerate() {
                let (ia, ib) = match pairs {
                    RopePairs::Adjacent => (2 * i, 2 * i + 1),
                    RopePairs::Halves => (i, i + half),
                };
                let (a, b) = (head[ia], head[ib]);
                head[ia] = a.mul_add(cos, -(b * sin));
                head[ib] = b.mul_add(cos, a * sin);
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only chosen on machines that have its instructions.
        Level::Avx2 => unsafe { super::avx2::rows::rope_head(head, cos, sin, pairs) },
    }
}

/// `x += y`. One addition each: the compiler may vectorise it, the bits cannot change.
pub(super) fn add(x: &mut [f32], y: &[f32]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// `out = fma(weight, x, out)`.
pub(super) fn add_scaled(level: Level, out: &mut [f32], x: &[f32], weight: f32) {
    match level {
        Level::Portable => {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = weight.mul_add(x, *out);
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only chosen on machines that have its instructions.
        Level::Avx2 => unsafe { super::avx2::rows::add_scaled(out, x, weight) },
    }
}
