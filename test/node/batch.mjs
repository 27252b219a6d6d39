// A client of a brood daemon that is not Go: it drives a whole batch over
// gRPC, checks what the contract promises of it, and looks at the daemon in
// the other ways it can be reached.
//
//   node batch.mjs TARGET TOKEN SOURCE COUNT
//
// TARGET is "unix:<socket>" or an address of loopback; TOKEN belongs to the
// latter and is "" for a socket. SOURCE is a checkpoint. Events are printed
// as lines of JSON; the forks are removed at the end. It ends with 0 when all
// held, else with 1 and the reason on standard error.

import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { Calls } from './calls.mjs'
import { Broken, Rules, must } from './rules.mjs'
import { Target, connectInfo, grpcWebInfo, refusesStrangers } from './web.mjs'

const seedPath = '/cua.daemon.v1.SandboxService/ForkSandboxBatch'
const ownPath = '/cua.daemon.v1.ForkBatchService/ForkSandboxBatch'

/** Drives one batch to its end, holding it to the rules. */
async function drive(calls, path, request, key, print) {
  const rules = new Rules({
    source: request.source, count: request.count, groupSize: request.group_size ?? 0,
    prefix: request.name_prefix, parallel: request.max_parallel_per_host || 4,
  })
  const events = []
  await calls.stream(path, request, { 'brood-batch-key': key }, {
    header: (metadata) => rules.header(metadata.get('brood-batch-id')[0]),
    event: (response) => {
      rules.event(response)
      events.push(response)
      print(response)
    },
  })
  rules.end()
  return { id: rules.id, events, ready: rules.ready(), failed: rules.failed() }
}

/** A line as the command line prints it: {"item":{…}}. */
function printEvent(response) {
  const line = { [response.event]: response[response.event] }
  if (response.sandbox) line.sandbox = response.sandbox
  process.stdout.write(JSON.stringify(line) + '\n')
}

/** What a batch promises after its end: the same again, for anyone. */
async function replays(calls, batch, request, key) {
  const again = await drive(calls, ownPath, request, key, () => {})
  must(again.id === batch.id, 'the same brood-batch-key made another batch:', batch.id, again.id)
  must(isDeepStrictEqual(again.events, batch.events), 'the same brood-batch-key told another story')
  const attached = []
  await calls.stream('/brood.v1.BatchService/AttachBatch', { batch_id: batch.id, after_sequence: 0 }, {}, {
    event: (response) => {
      attached.push(response.event)
      must(response.sequence === attached.length, 'AttachBatch: sequence numbers have a gap:', response.sequence, attached.length)
    },
  })
  must(isDeepStrictEqual(attached, batch.events), 'AttachBatch told another story')
}

/** Each fork has its own hostname, which is its name. */
async function knowsItself(calls, name) {
  let out = ''
  let exit = null
  await calls.stream('/brood.v1.ExecService/Exec', { sandbox: name, argv: ['uname', '-n'] }, {}, {
    event: (response) => {
      must(exit === null, 'exec goes on after exit:', response)
      if (response.event === 'stdout') out += response.stdout.data.toString()
      if (response.event === 'exit') exit = response.exit
    },
  })
  must(exit?.code === 0, `uname -n in ${name} ended with`, exit)
  must(out.trim() === name, `${name} believes it is`, out)
}

/** What is wrong is refused whole, with its code and reason. */
async function refuses(calls, source) {
  const wrong = [
    [{ source, count: 0 }, 3],
    [{ source, count: 1, groups: [{ source, count: 1 }] }, 3],
    [{ source: 'there-is-no-such-source', count: 1 }, 5],
  ]
  for (const [request, code] of wrong) {
    let events = 0
    const failure = await calls.stream(ownPath, request, {}, { event: () => events++ }).then(() => null, (err) => err)
    must(failure?.code === code && events === 0, 'a wrong request is not refused as it should be:', request, failure?.code)
    must(failure.metadata.get('grpc-status-details-bin').length === 1, 'a refusal is without its details:', request)
  }
}

/** An error in one line where it is a broken rule, else with all it says. */
export function reason(err) {
  return err instanceof Broken ? `broken: ${err.message}` : String(err?.stack ?? err)
}

/** Checks a daemon; what does not hold is thrown. */
export async function check([targetText, token, source, countText]) {
  const count = Number(countText)
  must(targetText && source && Number.isInteger(count) && count > 0, 'usage: node batch.mjs TARGET TOKEN SOURCE COUNT')
  const target = new Target(targetText, token)
  const calls = new Calls(target)
  const tag = randomBytes(4).toString('hex')
  const made = []
  const fork = async (path, request, key) => {
    const batch = await drive(calls, path, request, key, (response) => {
      if (response.event === 'item' && !response.item.error_code) made.push(response.item.name)
      printEvent(response)
    })
    must(batch.failed.length === 0, 'forks failed:', batch.failed)
    return batch
  }
  try {
    await calls.isServing()
    await calls.describesItself()
    const info = await connectInfo(target)
    const sameInfo = await grpcWebInfo(target, calls.decoder('/cua.daemon.v1.DaemonService/GetInfo'))
    must(info.pid === sameInfo.pid && info.version === sameInfo.version, 'GetInfo differs by protocol:', info.pid, sameInfo.pid)
    if (token) await refusesStrangers(target)
    await refuses(calls, source)

    const request = { source, count, group_size: Math.ceil(count / 2), name_prefix: `node-${tag}` }
    const key = `key-${tag}`
    const batch = await fork(ownPath, request, key)
    await replays(calls, batch, request, key)
    for (const item of batch.ready) await knowsItself(calls, item.name)
    await fork(seedPath, { source, count: 1 }, `key-${tag}-alias`)
  } finally {
    for (const name of made) await calls.unary('/cua.daemon.v1.SandboxService/DeleteSandbox', { name }).catch((err) => {
      process.exitCode = 1
      console.error(`remove ${name}: ${err.message}`)
    })
    calls.close()
  }
  console.error(`${count + 1} forks in 2 batches over ${targetText}: all rules held`)
}

if (import.meta.main) {
  await check(process.argv.slice(2)).catch((err) => {
    console.error(reason(err))
    process.exitCode = 1
  })
}
