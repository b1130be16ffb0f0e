//! The header fields of a message in their order.

/// Header fields (RFC 9110 §5) as received: in order, with duplicates, and in their original case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderFields(Vec<(Box<str>, Box<[u8]>)>);

/// Connection-specific fields (RFC 9110 §7.6.1). RFC 9110 no longer counts `Trailer` among them; it is
/// dropped before storage, because it means nothing once the body is stored.
const CONNECTION_FIELDS: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
];

impl HeaderFields {
    /// Appends a field, beside others of the same name.
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.0.push((name.into(), value.as_ref().into()));
    }

    /// Replaces all fields of this name with one.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.push(name, value);
    }

    /// Removes all fields of this name.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(it, _)| !it.eq_ignore_ascii_case(name));
    }

    /// Iterates over all names and values.
    pub fn all(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The values of all fields of this name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.all().filter(move |(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Applies `read` to the value of the field of this name. [`None`] if the field is missing, repeated or
    /// not text.
    pub fn parsed<T>(&self, name: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let mut values = self.values(name);
        let value = values.next().filter(|_| values.next().is_none())?;
        read(core::str::from_utf8(value).ok()?.trim())
    }

    /// Returns `true` if there is a field of this name.
    pub fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// The members of a list without quoted strings (RFC 9110 §5.6.1), over all fields of this name.
    pub fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let members = self.values(name).flat_map(|value| value.split(|byte| *byte == b','));
        members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
    }

    /// Returns `true` if the list in fields of this name has `member`, ignoring case.
    pub fn contains_member(&self, name: &str, member: &str) -> bool {
        self.members(name).any(|listed| listed.eq_ignore_ascii_case(member.as_bytes()))
    }

    /// Removes the connection-specific fields (RFC 9110 §7.6.1), and those that `Connection` names.
    pub fn remove_connection_fields(&mut self) {
        self.remove_nominated();
        self.0.retain(|(name, _)| {
            !CONNECTION_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field))
        });
    }

    /// Removes the fields that `Connection` names, but not `Connection` itself.
    pub(super) fn remove_nominated(&mut self) {
        // A client could name these to make the next reader find another body or host: they always stay.
        let kept =
            |name: &str| ["connection", "content-length", "host", "cache-control"].contains(&name);
        let texts = self.members("connection").filter_map(|value| core::str::from_utf8(value).ok());
        let mut named: Vec<String> = texts.map(str::to_ascii_lowercase).collect();
        named.retain(|name| !kept(name));
        self.0.retain(|(name, _)| {
            !named.iter().any(|nominated| name.eq_ignore_ascii_case(nominated))
        });
    }

    /// Approximate memory in bytes, with 48 of overhead for each field.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len() + 48).sum()
    }

    /// Appends the fields in wire format.
    pub fn write(&self, out: &mut Vec<u8>) {
        for (name, value) in self.all() {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Returns `true` for a byte of a field name or another token (RFC 9110 §5.6.2), except `*`, which `Vary`
/// uses as a wildcard.
pub(super) fn is_token_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(of: &[(&str, &str)]) -> HeaderFields {
        let mut fields = HeaderFields::default();
        of.iter().for_each(|(name, value)| fields.push(name, value));
        fields
    }

    #[test]
    fn lists_run_over_all_fields_of_a_name() {
        let fields = fields(&[("Vary", "Accept, , Cookie"), ("x", "1"), ("vary", "Origin")]);
        assert_eq!(
            fields.members("VARY").collect::<Vec<_>>(),
            [&b"Accept"[..], b"Cookie", b"Origin"]
        );
        assert!(fields.contains_member("vary", "origin") && !fields.contains_member("vary", "x"));
        let one = |text: &str| Some(text.to_owned());
        assert_eq!(fields.parsed("X", one).as_deref(), Some("1"));
        assert_eq!(fields.parsed("vary", one), None, "there are two");
    }

    #[test]
    fn what_is_of_the_connection_goes_and_what_frames_or_names_stays() {
        let mut fields = fields(&[
            ("Connection", "close, X-Mine, Content-Length, Host"),
            ("x-mine", "1"),
            ("Keep-Alive", "5"),
            ("Content-Length", "3"),
            ("Host", "a.example"),
        ]);
        let names = |fields: &HeaderFields| {
            fields.all().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        let mut unnamed = fields.clone();
        unnamed.remove_nominated();
        assert_eq!(names(&unnamed), ["Connection", "Keep-Alive", "Content-Length", "Host"]);
        fields.remove_connection_fields();
        assert_eq!(names(&fields), ["Content-Length", "Host"]);
    }
}
