//! A node for bundles: drives `pep::bundles` with a disk, streams of the hop, and TCP.

mod store;
