//! Features of the processor that decide between ciphers.

/// Returns `true` if the processor has instructions for AES-256-GCM. Without them ChaCha20-Poly1305
/// is faster, and safer against timing attacks.
#[cfg(target_arch = "x86_64")]
pub fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

/// Returns `true` if the processor has instructions for AES-256-GCM.
#[cfg(target_arch = "aarch64")]
pub fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
}

/// Returns `false`: unknown for this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn has_aes() -> bool {
    false
}
