#!/usr/bin/env bash
# Prints what tshark says of the captures here: ./tshark.sh > tshark.txt
# Each number stands below the command that gave it. Data goes from B to A; A is the client,
# whose port is the higher one.
set -euo pipefail
cd "$(dirname "$0")"
number() { printf '$ %s\n%s %s %s\n' "$3" "$1" "$2" "$(bash -c "$3" 2>/dev/null)"; }
printf '# %s\n' "$(tshark --version 2>/dev/null | head -1)"
for file in loss-sender.pcapng loss-receiver.pcap reset.pcap wrap.pcap; do
    fields="tshark -r $file -T fields"
    b='tcp.srcport < 6000' a='tcp.srcport > 6000'
    extremes="sort -g | awk '{s += \$1; v[NR] = \$1} END {printf \"%d %.9f %.9f %.9f\", NR, v[1], s / NR, v[NR]}'"
    number $file packets_a_to_b "tshark -r $file -q -z conv,tcp | awk '/<->/ {print (\$1 ~ /:(80|5201)\$/) ? \$4 : \$7}'"
    number $file packets_b_to_a "tshark -r $file -q -z conv,tcp | awk '/<->/ {print (\$1 ~ /:(80|5201)\$/) ? \$7 : \$4}'"
    number $file data_packets "tshark -r $file -Y '$b && tcp.len > 0' | wc -l"
    number $file payload_bytes "$fields -e tcp.len -Y '$b' | awk '{s += \$1} END {print s}'"
    number $file unique_bytes "$fields -e tcp.ack -Y '$a && tcp.flags.reset == 0' | sort -n | tail -1"
    number $file fins "tshark -r $file -Y '$b && tcp.flags.fin == 1' | wc -l"
    number $file resets "tshark -r $file -Y '$a && tcp.flags.reset == 1' | wc -l"
    number $file retransmissions "tshark -r $file -Y '$b && tcp.analysis.retransmission' | wc -l"
    number $file out_of_order "tshark -r $file -Y '$b && tcp.analysis.out_of_order' | wc -l"
    number $file duplicate_acks "tshark -r $file -Y '$a && tcp.analysis.duplicate_ack' | wc -l"
    number $file sack_packets "tshark -r $file -Y '$a && tcp.options.sack_le' | wc -l"
    number $file sack_blocks "$fields -e tcp.options.sack_le -E occurrence=a -E aggregator=/s -Y '$a && tcp.options.sack_le' | wc -w"
    number $file in_flight_max "$fields -e tcp.analysis.bytes_in_flight -Y '$b && tcp.len > 0' | sort -n | tail -1"
    number $file window_max "$fields -e tcp.window_size -Y '$a && tcp.flags.syn == 0 && tcp.flags.reset == 0' | sort -n | tail -1"
    number $file handshake "$fields -e tcp.analysis.initial_rtt -Y tcp.analysis.initial_rtt | head -1"
    number $file rtt "$fields -e tcp.analysis.ack_rtt -Y '$a && tcp.analysis.ack_rtt && tcp.ack > 1' | $extremes"
    number $file idle "$fields -e frame.time_relative -Y '$b && tcp.len > 0' | awk 'NR > 1 && \$1 - t > m {m = \$1 - t} {t = \$1} END {printf \"%.9f\", m}'"
done
