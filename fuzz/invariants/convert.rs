// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks TCP Convert messages: a message is complete with its last byte and not before. A parsed message reads back
//! after encoding. Every refusal has an answer that the peer can parse.

use longhaul_protocol::convert::{
    Answer, ConvertError, FirstMessage, HOPS_MAX, MESSAGE_LEN_MAX, Request,
};

pub(crate) fn check(input: &[u8]) {
    let request = Request::parse(input);
    check_message_end(input, &request, Request::parse);
    match request {
        Ok(Some((request, _))) => check_round_trip(request),
        Ok(None) => {}
        Err(error) => check_answer_round_trip(error.answer()),
    }
    let first_message = FirstMessage::parse(input);
    check_message_end(input, &first_message, FirstMessage::parse);
    if let Ok(Some((FirstMessage::Join(join), len))) = first_message {
        let message = join.encode();
        assert_eq!(
            FirstMessage::parse(&message),
            Ok(Some((FirstMessage::Join(join), message.len())))
        );
        assert!(
            Request::parse(&input[..len]).is_err(),
            "both a request and a join"
        );
    }
    let answer = Answer::parse(input);
    check_message_end(input, &answer, Answer::parse);
    check_bytes_missing(input, &answer);
    if let Ok(Some((answer, _))) = answer {
        check_answer_round_trip(answer);
    }
}

type Parsed<T> = Result<Option<(T, usize)>, ConvertError>;

fn check_message_end<T: PartialEq + std::fmt::Debug>(
    input: &[u8],
    parsed: &Parsed<T>,
    parse: fn(&[u8]) -> Parsed<T>,
) {
    match parsed {
        Ok(Some((_, len))) => {
            assert!(*len <= input.len().min(MESSAGE_LEN_MAX) && len % 4 == 0);
            assert_eq!(&parse(&input[..*len]), parsed);
            assert_eq!(parse(&input[..len - 1]), Ok(None));
        }
        Ok(None) => assert!(input.len() < MESSAGE_LEN_MAX),
        Err(_) => {}
    }
}

fn check_round_trip(request: Request) {
    assert!(request.hops.len() <= HOPS_MAX);
    let message = request.encode();
    assert!(message.len() <= MESSAGE_LEN_MAX);
    assert_eq!(Request::parse(&message), Ok(Some((request, message.len()))));
}

fn check_answer_round_trip(answer: Answer) {
    let message = answer.encode();
    assert_eq!(Answer::parse(&message), Ok(Some((answer, message.len()))));
}

/// Checks that no bytes are missing exactly when the answer can be parsed or is invalid.
fn check_bytes_missing(input: &[u8], answer: &Parsed<Answer>) {
    match Answer::bytes_missing(input) {
        Ok(0) => assert_ne!(*answer, Ok(None)),
        Ok(bytes) => assert!(bytes <= MESSAGE_LEN_MAX && *answer == Ok(None)),
        Err(error) => assert_eq!(*answer, Err(error)),
    }
}
