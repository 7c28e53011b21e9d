// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks what an FTP server sends. A reply ends with its last byte and within the bound; a port in it is one. A line of
//! a listing is the parts that it is split into. A name from it makes one command.

use longhaul_protocol::ftp::{Argument, ListLine, REPLY_LEN_MAX, Reply, ReplyError};

pub(crate) fn check(input: &[u8]) {
    check_reply(input);
    for line in input.split(|byte| *byte == b'\n') {
        check_line(line);
    }
}

fn check_reply(input: &[u8]) {
    match Reply::parse(input) {
        Ok(Some((reply, len))) => {
            assert!(len <= input.len().min(REPLY_LEN_MAX));
            assert_eq!(Reply::parse(&input[..len - 1]), Ok(None));
            assert_eq!(Reply::parse(&input[..len]), Ok(Some((reply.clone(), len))));
            check_content(&reply);
        }
        Ok(None) => assert!(input.len() < REPLY_LEN_MAX),
        Err(ReplyError::NoCode) => assert!(input.contains(&b'\n')),
        Err(ReplyError::TooLong) => assert!(input.len() >= REPLY_LEN_MAX),
    }
}

fn check_content(reply: &Reply) {
    assert!((100..600).contains(&reply.code));
    assert!(!reply.summary().contains(char::is_control));
    assert!(
        reply
            .extended_passive_port()
            .is_none_or(|port| port > 0 && reply.code == 229)
    );
    assert!(
        reply
            .passive_port()
            .is_none_or(|port| port > 0 && reply.code == 227)
    );
    let facts = (reply.size(), reply.modification_time());
    assert!(facts == (None, None) || reply.code == 213);
}

fn check_line(line: &[u8]) {
    let Some(entry) = ListLine::parse(line) else {
        return;
    };
    assert!(!entry.name.is_empty());
    assert_eq!([entry.before, entry.name, entry.after].concat(), line);
    let command = Argument::new(entry.name).map(|name| name.encode_command("RETR"));
    let ends = |command: Vec<u8>| command.iter().filter(|byte| b"\r\n".contains(byte)).count();
    assert_eq!(command.map_or(2, ends), 2);
}
