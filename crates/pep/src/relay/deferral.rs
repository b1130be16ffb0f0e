//! Deferred answers: a SYN is answered only after the far end has answered.
//!
//! Each withheld SYN becomes a [`Question`] to the far side. Depending on the answer, the SYN is
//! let in and accepted here, or the client is told why not. A retransmitted SYN belongs to the same
//! question.

use core::net::SocketAddr;
use std::collections::BTreeMap;

/// Maximum number of open questions and of connections that resulted from them: as many as a
/// session has streams.
const MAX_FLOWS: usize = 65_536;

/// Source and destination of a connection.
type Ends = (SocketAddr, SocketAddr);

/// One withheld SYN. A new SYN between the same ends, after this question was forgotten, is another
/// question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    ends: Ends,
    number: u64,
}

/// What to do with a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Ask the far side. Call [`Questions::end`] when the connection is over.
    New(Question),
    /// Let it in. Either the first SYN or its answer was lost; or it is an old SYN; or the client
    /// has forgotten a connection that still exists here.
    LetIn,
    /// Drop it: its question is still open, or there are too many.
    Drop,
}

/// Open questions, and the connections that resulted from them.
#[derive(Debug, Default)]
pub struct Questions {
    flows: BTreeMap<Ends, Flow>,
    next: u64,
}

#[derive(Debug)]
struct Flow {
    number: u64,
    /// The far end has answered, so the kernel handles further SYNs.
    is_answered: bool,
    /// Its connection was accepted here.
    is_accepted: bool,
}

impl Questions {
    /// Takes a SYN from `source` to `destination`.
    pub fn ask(&mut self, source: SocketAddr, destination: SocketAddr) -> Asked {
        let ends = (source, destination);
        match self.flows.get(&ends) {
            Some(flow) if flow.is_answered => return Asked::LetIn,
            Some(_) => return Asked::Drop,
            None if self.flows.len() >= MAX_FLOWS => return Asked::Drop,
            None => {}
        }
        let number = self.next;
        self.next += 1;
        self.flows.insert(ends, Flow { number, is_answered: false, is_accepted: false });
        Asked::New(Question { ends, number })
    }

    /// The far side has connected. Returns whether to let the SYN in: not if the question was
    /// forgotten.
    pub fn answer(&mut self, question: Question) -> bool {
        let flow = self.flow(question);
        flow.map(|flow| flow.is_answered = true).is_some()
    }

    /// Whether the question is still open, so that its client may be told of a failure.
    pub fn contains(&mut self, question: Question) -> bool {
        self.flow(question).is_some()
    }

    /// A connection was accepted. Returns its question, once.
    pub fn accept(&mut self, source: SocketAddr, destination: SocketAddr) -> Option<Question> {
        let ends = (source, destination);
        let flow = self.flows.get_mut(&ends).filter(|flow| !flow.is_accepted)?;
        flow.is_accepted = true;
        Some(Question { ends, number: flow.number })
    }

    /// The connection is over, or was never established.
    pub fn end(&mut self, question: Question) {
        if self.flow(question).is_some() {
            self.flows.remove(&question.ends);
        }
    }

    /// Forgets the open questions. From here on SYNs pass unaccelerated, and a client that connects
    /// that way must not be answered twice.
    pub fn forget(&mut self) {
        self.flows.retain(|_, flow| flow.is_answered);
    }

    fn flow(&mut self, question: Question) -> Option<&mut Flow> {
        self.flows.get_mut(&question.ends).filter(|flow| flow.number == question.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        (([192, 0, 2, 1], port).into(), ([198, 51, 100, 1], 80).into())
    }

    fn ask(questions: &mut Questions, port: u16) -> Asked {
        let (source, destination) = ends(port);
        questions.ask(source, destination)
    }

    fn asked(questions: &mut Questions, port: u16) -> Question {
        match ask(questions, port) {
            Asked::New(question) => question,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_repeated_syn_is_one_question_until_its_connection_is_over() {
        let mut questions = Questions::default();
        let question = asked(&mut questions, 1);
        assert_eq!(ask(&mut questions, 1), Asked::Drop, "while the far end is asked");
        assert!(questions.answer(question));
        assert_eq!(ask(&mut questions, 1), Asked::LetIn, "while the connection exists");
        questions.end(question);
        assert_ne!(asked(&mut questions, 1), question);
    }

    #[test]
    fn a_forgotten_question_is_not_answered_and_may_be_asked_again() {
        let mut questions = Questions::default();
        let [answered, question] = [1, 2].map(|port| asked(&mut questions, port));
        assert!(questions.answer(answered));
        questions.forget();
        assert!(!questions.answer(question) && !questions.contains(question));
        let again = asked(&mut questions, 2);
        questions.end(question);
        assert!(questions.contains(again), "the old question does not end the new one");
        assert_eq!(ask(&mut questions, 1), Asked::LetIn, "an answered one is not forgotten");
    }

    #[test]
    fn an_accepted_connection_goes_to_its_question_once() {
        let mut questions = Questions::default();
        let question = asked(&mut questions, 1);
        let (source, destination) = ends(1);
        assert_eq!(questions.accept(source, destination), Some(question));
        assert_eq!(questions.accept(source, destination), None);
        assert_eq!(questions.accept(destination, source), None, "nobody asked for it");
    }

    #[test]
    fn questions_are_bounded() {
        let mut questions = Questions::default();
        for number in 0..MAX_FLOWS {
            let source = ([10, 0, (number >> 16) as u8, 0], number as u16).into();
            assert!(matches!(questions.ask(source, ends(0).1), Asked::New(_)));
        }
        assert_eq!(ask(&mut questions, 1), Asked::Drop);
    }
}
