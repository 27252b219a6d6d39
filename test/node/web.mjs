// The daemon over plain HTTP: Connect's JSON and gRPC-Web, by hand.

import http from 'node:http'
import { must } from './rules.mjs'

/**
 * Target is one way to reach a daemon: "unix:<path>", or an address of
 * loopback with a token.
 */
export class Target {
  constructor(text, token) {
    this.token = token
    if (text.startsWith('unix:')) {
      this.grpc = text
      this.http = { socketPath: text.slice('unix:'.length), host: 'localhost' }
    } else {
      const url = new URL(text.includes('://') ? text : `http://${text}`)
      this.grpc = url.host
      this.http = { host: url.hostname, port: url.port }
    }
  }

  /** Sends one request and returns the whole answer. */
  post(path, type, body, token = this.token) {
    const headers = { 'content-type': type, 'content-length': body.length }
    if (token) headers.authorization = `Bearer ${token}`
    return new Promise((resolve, reject) => {
      const request = http.request({ ...this.http, path, method: 'POST', headers, timeout: 30_000 }, (answer) => {
        const parts = []
        answer.on('data', (part) => parts.push(part))
        answer.on('end', () => resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts) }))
        answer.on('error', reject)
      })
      request.on('timeout', () => request.destroy(new Error(`${path}: no answer for 30 s`)))
      request.on('error', reject)
      request.end(body)
    })
  }
}

const path = '/cua.daemon.v1.DaemonService/GetInfo'

/** GetInfo as JSON over HTTP/1.1. */
export async function connectInfo(target) {
  const answer = await target.post(path, 'application/json', Buffer.from('{}'))
  must(answer.status === 200, 'Connect: GetInfo answered', answer.status, answer.body.toString())
  must(answer.headers['content-type'] === 'application/json', 'Connect: the answer is', answer.headers['content-type'])
  const info = JSON.parse(answer.body.toString())
  must(Number.isInteger(info.pid) && info.pid > 0, 'Connect: GetInfo says no pid:', Object.keys(info))
  return info
}

/** GetInfo in gRPC-Web's frames; decode turns the message into an object. */
export async function grpcWebInfo(target, decode) {
  const answer = await target.post(path, 'application/grpc-web+proto', Buffer.alloc(5))
  must(answer.status === 200, 'gRPC-Web: GetInfo answered', answer.status)
  let message = null
  let trailer = null
  for (let at = 0; at < answer.body.length; ) {
    must(answer.body.length - at >= 5, 'gRPC-Web: a frame is cut short')
    const flags = answer.body[at]
    const size = answer.body.readUInt32BE(at + 1)
    const content = answer.body.subarray(at + 5, at + 5 + size)
    must(content.length === size && trailer === null, 'gRPC-Web: frames do not add up')
    if (flags & 0x80) trailer = content.toString()
    else message = decode(content)
    at += 5 + size
  }
  must(/^grpc-status: *0\r?$/m.test(trailer ?? ''), 'gRPC-Web: the trailer is', trailer)
  must(message?.pid > 0, 'gRPC-Web: GetInfo says no pid')
  return message
}

/** A loopback address lets nobody in without its token. */
export async function refusesStrangers(target) {
  for (const token of ['', `${target.token}x`]) {
    const answer = await target.post(path, 'application/json', Buffer.from('{}'), token)
    must(answer.status === 401, 'without the right token GetInfo answered', answer.status)
  }
}
