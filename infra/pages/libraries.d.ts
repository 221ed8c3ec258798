// What our pages use of their libraries, for `deno check`: the packages' own types are not vendored.
// deno-lint-ignore-file no-explicit-any
export type Node = any;
export function h(type: any, props: any, ...children: Node[]): Node;
export function render(node: Node, parent: Element): void;

export function useState<T>(first?: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useRef(first?: unknown): { current: any };
export function useEffect(act: () => void | (() => void), inputs?: unknown[]): void;
export function useLayoutEffect(act: () => void | (() => void), inputs?: unknown[]): void;
export function useMemo<T>(make: () => T, inputs?: unknown[]): T;
export function useCallback<T>(act: T, inputs?: unknown[]): T;

export interface Signal<T = any> {
  value: T;
  peek(): T;
  subscribe(listener: (value: T) => void): () => void;
}
export function signal<T = any>(first?: T): Signal<T>;
export function computed<T>(make: () => T): Signal<T>;
export function effect(act: () => void | (() => void)): () => void;
export function batch<T>(act: () => T): T;
export function useSignal<T>(first?: T): Signal<T>;
export function useComputed<T>(make: () => T): Signal<T>;

declare const library: any;
export default library;
