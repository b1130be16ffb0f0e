//! What endpoints take from many peers and from strangers, and what they hold for them.

#[path = "../kit/counting.rs"]
mod counting;
#[path = "../kit/pair.rs"]
mod pair;
#[path = "../kit/star.rs"]
mod star;

mod crowd;
mod effort;
mod flood;
mod hub;
mod idle;
mod idle_sessions;
mod marks;
mod own_memory;
mod packet_address;
mod parts;
mod probing;
mod rivals;
mod shares;
mod versions;
