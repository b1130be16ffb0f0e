//! Machines as they are: shared by several users, or with something missing.

mod places;
mod shared;
