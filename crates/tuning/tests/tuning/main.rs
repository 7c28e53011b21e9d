// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary and its commands of this crate, with real sockets, files and processes; DECP against its model.

mod aimd;
mod cc_host;
mod cc_load;
mod cc_refusals;
mod decp;
mod decp_namespaces;
mod decp_refusals;
mod decp_streams;
mod doctor;
mod doctor_network;
mod run_ack_control;
mod run_program;
mod run_programs;
mod run_refusals;
mod run_send_buffers;
mod run_sockets;
mod run_traces;
mod streams;
