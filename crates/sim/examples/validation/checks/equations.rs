//! Equations from the literature. Windows are in segments, times in seconds.

/// M. Mathis, J. Semke, J. Mahdavi and T. Ott, "The Macroscopic Behavior of the TCP Congestion
/// Avoidance Algorithm", ACM CCR 27(3), 1997, equation 3: the mean window when every 1/p-th packet
/// is lost and each segment is acknowledged, C = √(3/2).
pub(crate) fn mathis(p: f64) -> f64 {
    (1.5 / p).sqrt()
}

/// J. Padhye, V. Firoiu, D. Towsley and J. Kurose, "Modeling TCP Throughput: A Simple Model and its
/// Empirical Validation", SIGCOMM 1998, equation 30, with b = 1 and no receiver limit: the rate
/// times the RTT.
pub(crate) fn pftk(p: f64, rtt: f64, timeout: f64) -> f64 {
    let fast = rtt * (2.0 * p / 3.0).sqrt();
    let slow = timeout * (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    rtt / (fast + slow)
}

/// RFC 9438 §5 equation 5 with β = 0.7 and C = 0.4, but at least the result of the Reno-friendly
/// region of §4.3, which is Reno's.
pub(crate) fn cubic(p: f64, rtt: f64) -> f64 {
    let own = (0.4 * 3.7 / 1.2_f64).sqrt().sqrt() * (rtt / p).powf(0.75);
    own.max(mathis(p))
}

/// RFC 2488 §4.1 after Jacobson: the number of round trips slow start takes between two windows if
/// it grows by `factor` in each.
pub(crate) fn slow_start(from: f64, to: f64, factor: f64) -> f64 {
    (to / from).ln() / factor.ln()
}

/// S. Liu, T. Başar and R. Srikant, "TCP-Illinois", 2008: AIMD that adds α and removes the fraction
/// β: √(α(2 − β) / 2βp).
pub(crate) fn aimd(alpha: f64, beta: f64, p: f64) -> f64 {
    (alpha * (2.0 - beta) / (2.0 * beta * p)).sqrt()
}
