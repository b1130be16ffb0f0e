//! What the processor can do.

/// Whether it has instructions for AES-256-GCM: without them ChaCha20-Poly1305 is
/// faster, and safer against who measures time.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

/// See above.
#[cfg(target_arch = "aarch64")]
pub(crate) fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
}

/// Nothing is known of it.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn has_aes() -> bool {
    false
}
