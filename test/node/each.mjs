// Runs the checks of batch.mjs against one server after the other, in one
// process: standard input has an object a line, {"name", "args"}; for each one
// a line {"name", "says"} goes to standard error, says being "" when all held.

import { createInterface } from 'node:readline/promises'
import { check, reason } from './batch.mjs'

for await (const line of createInterface({ input: process.stdin })) {
  const { name, args } = JSON.parse(line)
  const says = await check(args).then(() => '', reason)
  console.error(JSON.stringify({ name, says }))
}
