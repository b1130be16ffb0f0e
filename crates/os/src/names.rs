//! Name look-ups in a static binary.

/// Looks up hosts in `/etc/hosts` and DNS only, whatever `/etc/nsswitch.conf` says, if this program is
/// linked statically with glibc; otherwise does nothing.
///
/// glibc has these two services built in. Any other (mdns, resolve, …) is a shared object of the
/// machine's own glibc, and loading one of another version into a static program can end it. Call
/// this before any thread exists.
pub fn use_built_in_services() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        unsafe extern "C" {
            /// Sets the services that look up a database; declared in glibc's `<nss.h>`.
            fn __nss_configure_lookup(
                database: *const libc::c_char,
                services: *const libc::c_char,
            ) -> libc::c_int;
        }
        for (database, services) in [(c"hosts", c"files dns"), (c"services", c"files")] {
            // SAFETY: both are strings that live for ever; no other thread exists.
            let failed = unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
            debug_assert_eq!(failed, 0, "glibc knows both databases and their services");
        }
    }
}
