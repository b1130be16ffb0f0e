//! Log entries as lines of JSON (`docs/event-log.md`).

use core::fmt;

use super::{DropReason, LogEntry, LogEvent, PayloadUnit};

/// One JSON object, without a line break.
impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.time.as_nanos();
        let seconds = nanos / 1_000_000_000;
        let rest = nanos % 1_000_000_000;
        write!(f, r#"{{"time":{seconds}.{rest:09},"session":{}"#, self.session.0)?;
        write!(f, r#","event":"{}""#, name(&self.event))?;
        fields(f, &self.event)?;
        f.write_str("}")
    }
}

fn name(event: &LogEvent) -> &'static str {
    match event {
        LogEvent::Sent { .. } => "sent",
        LogEvent::Placed { .. } => "placed",
        LogEvent::Received { .. } => "received",
        LogEvent::Restored { .. } => "restored",
        LogEvent::Arrived { .. } => "arrived",
        LogEvent::Delivered { .. } => "delivered",
        LogEvent::Missing { .. } => "missing",
        LogEvent::AckSent { .. } => "ack_sent",
        LogEvent::AckReceived { .. } => "ack_received",
        LogEvent::Acknowledged { .. } => "acknowledged",
        LogEvent::Lost { .. } => "lost",
        LogEvent::GivenUp { .. } => "given_up",
        LogEvent::Dropped { .. } => "dropped",
        LogEvent::RepairSent { .. } => "repair_sent",
        LogEvent::RepairReceived { .. } => "repair_received",
        LogEvent::Probe => "probe",
        LogEvent::Rate { .. } => "rate",
        LogEvent::BreakerTripped { .. } => "breaker_tripped",
        LogEvent::BreakerTries { .. } => "breaker_tries",
        LogEvent::BreakerClosed { .. } => "breaker_closed",
        LogEvent::RateExceedsLink { .. } => "rate_exceeds_link",
        LogEvent::RateFitsLink { .. } => "rate_fits_link",
        LogEvent::CapacityFell { .. } => "capacity_fell",
        LogEvent::OutageBegins => "outage_begins",
        LogEvent::OutageEnds => "outage_ends",
    }
}

fn fields(f: &mut fmt::Formatter<'_>, event: &LogEvent) -> fmt::Result {
    match event {
        LogEvent::Sent { packet, bytes, source } => {
            write!(f, r#","packet":{packet},"bytes":{bytes},"source":{source}"#)
        }
        LogEvent::Placed { packet, unit, again } => {
            write!(f, r#","packet":{packet}{unit},"again":{again}"#)
        }
        LogEvent::Received { packet, bytes } => {
            write!(f, r#","packet":{packet},"bytes":{bytes}"#)
        }
        LogEvent::Restored { packet, acknowledgement } => {
            write!(f, r#","packet":{packet},"acknowledgement":{acknowledgement}"#)
        }
        LogEvent::Arrived { unit, late } => write!(f, r#"{unit},"late":{late}"#),
        LogEvent::Delivered { unit } | LogEvent::GivenUp { unit } => write!(f, "{unit}"),
        LogEvent::Missing { channel, lane, first, count } => {
            let channel = channel.number();
            write!(f, r#","channel":{channel},"lane":{lane},"first":{first},"count":{count}"#)
        }
        LogEvent::AckSent { packet, largest } => {
            write!(f, r#","packet":{packet},"largest":{largest}"#)
        }
        LogEvent::AckReceived { largest } => write!(f, r#","largest":{largest}"#),
        LogEvent::Acknowledged { packet }
        | LogEvent::Lost { packet }
        | LogEvent::RepairReceived { packet } => write!(f, r#","packet":{packet}"#),
        LogEvent::Dropped { channel, lane, why } => {
            let why = reason(*why);
            write!(f, r#","channel":{},"lane":{lane},"why":"{why}""#, channel.number())
        }
        LogEvent::RepairSent { packet, base, count } => {
            write!(f, r#","packet":{packet},"base":{base},"count":{count}"#)
        }
        LogEvent::Rate { rate }
        | LogEvent::RateExceedsLink { carries: rate }
        | LogEvent::RateFitsLink { rate }
        | LogEvent::CapacityFell { rate }
        | LogEvent::BreakerTripped { rate }
        | LogEvent::BreakerTries { rate }
        | LogEvent::BreakerClosed { rate } => {
            write!(f, r#","bits_per_second":{}"#, rate.bits_per_second())
        }
        LogEvent::Probe | LogEvent::OutageBegins | LogEvent::OutageEnds => Ok(()),
    }
}

/// The fields that identify a unit.
impl fmt::Display for PayloadUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { stream, start, end } => {
                write!(f, r#","stream":{},"start":{start},"end":{end}"#, stream.0)
            }
            Self::Packet { channel, lane, sequence } => {
                let channel = channel.number();
                write!(f, r#","channel":{channel},"lane":{lane},"sequence":{sequence}"#)
            }
        }
    }
}

fn reason(why: DropReason) -> &'static str {
    match why {
        DropReason::Full => "full",
        DropReason::Stale => "stale",
        DropReason::Aqm => "aqm",
    }
}

#[cfg(test)]
mod tests {
    use units::Instant;

    use super::*;
    use crate::ChannelId;
    use crate::{SessionId, StreamId};

    fn line(event: LogEvent) -> String {
        let time = Instant::from_nanos(12_000_345_000);
        LogEntry { time, session: SessionId(3), event }.to_string()
    }

    #[test]
    fn a_line_is_one_object() {
        let unit = PayloadUnit::Packet { channel: ChannelId(2), lane: 9, sequence: 71 };
        assert_eq!(
            line(LogEvent::Placed { packet: 8, unit, again: true }),
            r#"{"time":12.000345000,"session":3,"event":"placed","packet":8,"channel":2,"lane":9,"sequence":71,"again":true}"#
        );
        let unit = PayloadUnit::Stream { stream: StreamId(4), start: 0, end: 100 };
        assert_eq!(
            line(LogEvent::Delivered { unit }),
            r#"{"time":12.000345000,"session":3,"event":"delivered","stream":4,"start":0,"end":100}"#
        );
        assert_eq!(
            line(LogEvent::OutageEnds),
            r#"{"time":12.000345000,"session":3,"event":"outage_ends"}"#
        );
    }
}
