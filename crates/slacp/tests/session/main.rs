//! Sessions of two endpoints over a simulated path, in virtual time.

#[path = "../kit/carrier.rs"]
mod carrier;
#[path = "../kit/hop.rs"]
mod hop;
#[path = "../kit/links.rs"]
mod links;
#[path = "../kit/luck.rs"]
mod luck;
#[path = "../kit/packets.rs"]
mod packets;
#[path = "../kit/pair.rs"]
mod pair;
#[path = "../kit/path/mod.rs"]
mod path;
#[path = "../kit/rows/mod.rs"]
mod rows;

mod acceptance;
mod aggregate;
mod breaker;
mod channels;
mod classes;
mod ecn;
mod fairness;
mod first_rtt;
mod flow;
mod lifecycle;
mod link_layer;
mod link_watch;
mod links_and_headers;
mod memory;
mod migration;
mod modem_or_auto;
mod one_way;
mod path_mtu;
mod portion;
mod rain_cell;
mod rate;
mod rekey;
mod several_links;
mod suspend;
mod transfer;
mod trust;
mod voice;
mod wire;
