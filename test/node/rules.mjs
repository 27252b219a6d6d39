// The order rules of a batch's events, checked as the events arrive.

const codes = new Set(['no_host', 'no_capacity', 'host_failed', 'sync_failed', 'fork_failed'])

export class Broken extends Error {}

/** Fails with what was seen when a rule does not hold. */
export function must(holds, what, ...seen) {
  if (!holds) throw new Broken([what, ...seen.map((s) => JSON.stringify(s))].join(' '))
}

/**
 * Rules watches one batch. It wants the header first, then every event in
 * order, then the end of the stream.
 */
export class Rules {
  /** @param {{source: string, count: number, groupSize: number, prefix: string, parallel: number}} asked */
  constructor(asked) {
    this.asked = asked
    this.id = ''
    this.events = 0
    this.placements = new Map() // group/host/attempt -> forks that may still come from it
    this.placedAtFirst = new Map() // group -> forks placed by attempt 1
    this.items = new Map() // index -> item
    this.copies = new Map() // checkpoint -> last progress
    this.done = null
  }

  header(id) {
    must(this.events === 0, 'response header brood-batch-id came after the first event')
    must(typeof id === 'string' && id !== '', 'response header brood-batch-id is missing')
    this.id = id
  }

  event(response) {
    must(this.id !== '', 'an event came before the response header', response)
    must(!this.done, 'an event came after done', response)
    this.events++
    switch (response.event) {
      case 'placement': return this.#placement(response.placement)
      case 'sync': return this.#sync(response.sync)
      case 'item': return this.#item(response.item, response.sandbox)
      case 'done': return this.#done(response.done)
      default: must(false, 'an event holds none of placement, sync, item, done:', response)
    }
  }

  end() {
    must(this.done, 'the stream ended without done')
  }

  /** Ready items by index. */
  ready() {
    return [...this.items.values()].filter((i) => !i.error_code).sort((a, b) => a.index - b.index)
  }

  /** Failed items by index. */
  failed() {
    return [...this.items.values()].filter((i) => i.error_code).sort((a, b) => a.index - b.index)
  }

  #groupOf(index) {
    return this.asked.groupSize ? Math.floor(index / this.asked.groupSize) : 0
  }

  #sizeOf(group) {
    const { count, groupSize } = this.asked
    return groupSize ? Math.min(groupSize, count - group * groupSize) : count
  }

  #placement(p) {
    must(p.source === this.asked.source, 'a placement of another source:', p)
    must(this.#sizeOf(p.group) > 0, 'a placement of a group that is not there:', p)
    must(p.host !== '' && p.count > 0 && p.attempt > 0 && p.reason !== '', 'a placement is not filled in:', p)
    const key = `${p.group}/${p.host}/${p.attempt}`
    this.placements.set(key, (this.placements.get(key) ?? 0) + p.count)
    if (p.attempt === 1) {
      const placed = (this.placedAtFirst.get(p.group) ?? 0) + p.count
      this.placedAtFirst.set(p.group, placed)
      must(placed <= this.#sizeOf(p.group), 'more forks of a group are placed than it has:', p)
    }
  }

  #sync(s) {
    must(s.name !== '' && s.from !== '' && s.bytes_done <= s.bytes_total, 'progress of a copy is wrong:', s)
    const key = `${s.digest}/${s.to}`
    const last = this.copies.get(key)
    must(!last?.done, 'a copy goes on after it was done:', s)
    must(!last || s.bytes_done >= last.bytes_done, 'a copy goes backwards:', s)
    this.copies.set(key, s)
  }

  #item(item, sandbox) {
    const { count, source, prefix } = this.asked
    must(item.index < count, 'an index beyond the batch:', item)
    must(!this.items.has(item.index), 'a second item for one fork:', item)
    must(item.group === this.#groupOf(item.index), 'an item in the wrong group:', item)
    must(item.source === source && item.attempt > 0, 'an item is not filled in:', item)
    if (prefix) must(item.name === `${prefix}-${item.index}`, 'a name that was not asked for:', item)
    must(item.name.endsWith(`-${item.index}`), 'a name without its number:', item)
    if (item.error_code || item.error) this.#failedItem(item, sandbox)
    else this.#readyItem(item, sandbox)
    this.items.set(item.index, item)
  }

  #failedItem(item, sandbox) {
    must(codes.has(item.error_code) && item.error !== '', 'a failure without its code and reason:', item)
    must(item.space === '' && !sandbox, 'a failed fork is handed out:', item)
  }

  #readyItem(item, sandbox) {
    const key = `${item.group}/${item.host}/${item.attempt}`
    const left = this.placements.get(key) ?? 0
    must(left > 0, 'an item came before the placement it is from:', item)
    this.placements.set(key, left - 1)
    must(item.elapsed_ms >= item.fork_ms, 'a fork took longer than the batch until then:', item)
    must(item.host === 'local' && item.space === `local:${item.name}`, 'a fork here is not reached as local:', item)
    must(sandbox?.id === item.space && sandbox.name === item.name, 'a ready item here is without its sandbox:', item)
    must(sandbox.state === 'SANDBOX_STATE_RUNNING', 'a ready fork does not run:', sandbox)
  }

  #done(done) {
    const { count, parallel } = this.asked
    const ready = this.ready()
    for (let i = 0; i < count; i++) must(this.items.has(i), `done came without an item for index ${i}`)
    must(done.ok === ready.length && done.failed === count - ready.length, 'the summary miscounts:', done)
    const byHost = {}
    for (const item of ready) byHost[item.host] = (byHost[item.host] ?? 0) + 1
    const hosts = new Set([...Object.keys(byHost), ...Object.keys(done.per_host)])
    for (const h of hosts) must((done.per_host[h] ?? 0) === (byHost[h] ?? 0), 'per_host miscounts:', done)
    for (const h of Object.keys(byHost)) must(done.peak_parallel[h] >= 1, 'peak_parallel is missing:', done)
    for (const n of Object.values(done.peak_parallel)) must(n <= parallel, 'more forks at once than asked for:', done)
    for (const item of this.items.values()) must(item.elapsed_ms <= done.elapsed_ms, 'an item is later than done:', item)
    for (const s of this.copies.values()) must(s.done, 'a copy has no end:', s)
    this.done = done
  }
}
