//! The floating-point environment of a computing thread: subnormals kept, rounding to nearest.
//!
//! A library loaded by somebody else may have set flush-to-zero on a thread, and new threads inherit it. Then subnormal scales
//! would vanish on some machines only, and the bits would differ.
#![allow(unsafe_code, reason = "the control register is only reached by its instructions")]

/// All exceptions masked, round to nearest even, no flush-to-zero (bit 15), no denormals-are-zero (bit 6).
#[cfg(target_arch = "x86_64")]
const DEFAULT: u32 = 0x1f80;
/// The bits that change results: flush-to-zero, rounding mode, denormals-are-zero. The rest are exception masks and flags.
#[cfg(target_arch = "x86_64")]
const RESULT_BITS: u32 = 0xe040;

/// Gives the calling thread the environment that every order of additions assumes.
#[cfg(target_arch = "x86_64")]
pub(crate) fn make_default() {
    let mut register = 0_u32;
    // SAFETY: stores the register into 4 writable bytes.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut register, options(nostack, preserves_flags)) };
    if register & RESULT_BITS == 0 {
        return;
    }
    let default = DEFAULT;
    // SAFETY: loads the value that Rust code may assume anyway.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const default, options(nostack, preserves_flags, readonly)) };
}

/// Elsewhere a thread starts with IEEE defaults, and nothing this project loads changes them.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn make_default() {}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    #[test]
    fn flush_to_zero_is_switched_off() {
        let flushing = 0x9fc0_u32;
        // SAFETY: a valid control word with flush-to-zero and denormals-are-zero; undone by the call under test.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const flushing, options(nostack, preserves_flags)) };
        super::make_default();
        let tiny = std::hint::black_box(f32::MIN_POSITIVE);
        assert!(tiny * 0.5 > 0.0, "half of the smallest normal number is subnormal, not zero");
    }
}
